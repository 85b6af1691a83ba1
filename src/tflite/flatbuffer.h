// Reads FlatBuffers from untrusted bytes: every access checks its bounds, nothing is copied or allocated. The format is
// that of the FlatBuffers documentation ("FlatBuffer internals"): a table begins with its distance to a vtable, which
// gives each field's place in the table; references are distances forward.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "support/error.h"

namespace sardonyx::tflite {

class Bytes {
 public:
  explicit Bytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::size_t size() const { return bytes_.size(); }
  /// Throws Error(kInvalidModel) unless the range lies within the file.
  std::span<const std::byte> range(std::size_t at, std::size_t count) const {
    if (at > bytes_.size() || count > bytes_.size() - at)
      fail(ErrorKind::kInvalidModel, "malformed or truncated: byte {} refers to {} bytes beyond the end", at, count);
    return bytes_.subspan(at, count);
  }
  template <typename T>
  T read(std::size_t at) const {
    T value;
    std::memcpy(&value, range(at, sizeof(T)).data(), sizeof(T));
    return value;
  }
  /// What the reference at `at` refers to.
  std::size_t follow(std::size_t at) const { return at + read<std::uint32_t>(at); }

 private:
  std::span<const std::byte> bytes_;
};

/// A vector of numbers; empty if its field is absent.
template <typename T>
class Numbers {
 public:
  Numbers() = default;
  Numbers(const Bytes& bytes, std::size_t at) : bytes_(&bytes), at_(at + 4), size_(bytes.read<std::uint32_t>(at)) {
    if (size_ > bytes.size() / sizeof(T))
      fail(ErrorKind::kInvalidModel, "malformed or truncated: the vector at byte {} has {} elements", at, size_);
    bytes.range(at_, size_ * sizeof(T));
  }
  std::size_t size() const { return size_; }
  /// `i` < size()
  T operator[](std::size_t i) const {
    check(bytes_ != nullptr && i < size_, "element {} of {} is read", i, size_);
    return bytes_->read<T>(at_ + i * sizeof(T));
  }
  std::span<const std::byte> bytes() const {
    return size_ == 0 ? std::span<const std::byte>() : bytes_->range(at_, size_ * sizeof(T));
  }

 private:
  const Bytes* bytes_ = nullptr;
  std::size_t at_ = 0, size_ = 0;
};

class Table;

/// A vector of tables; empty if its field is absent.
class Tables {
 public:
  Tables() = default;
  Tables(const Bytes& bytes, std::size_t at) : bytes_(&bytes), at_(at), offsets_(bytes, at) {}
  std::size_t size() const { return offsets_.size(); }
  /// `i` < size()
  Table operator[](std::size_t i) const;

 private:
  const Bytes* bytes_ = nullptr;
  std::size_t at_ = 0;
  Numbers<std::uint32_t> offsets_;
};

/// A table; fields that the file does not have get the schema's default, which callers give.
class Table {
 public:
  Table(const Bytes& bytes, std::size_t at) : bytes_(&bytes), at_(at) {
    const std::int64_t vtable = static_cast<std::int64_t>(at) - bytes.read<std::int32_t>(at);
    if (vtable < 0) fail(ErrorKind::kInvalidModel, "malformed: the table at byte {} has no vtable", at);
    vtable_ = static_cast<std::size_t>(vtable);
    vtable_size_ = bytes.read<std::uint16_t>(vtable_);
  }
  /// The root of a file.
  static Table root(const Bytes& bytes) { return {bytes, bytes.follow(0)}; }

  template <typename T>
  T get(int field, T fallback) const {
    const auto at = place(field);
    if constexpr (std::is_same_v<T, bool>)
      return at ? bytes_->read<std::uint8_t>(*at) != 0 : fallback;
    else
      return at ? bytes_->read<T>(*at) : fallback;
  }
  std::optional<Table> table(int field) const {
    const auto at = place(field);
    if (!at) return std::nullopt;
    return Table(*bytes_, bytes_->follow(*at));
  }
  template <typename T>
  Numbers<T> numbers(int field) const {
    const auto at = place(field);
    return at ? Numbers<T>(*bytes_, bytes_->follow(*at)) : Numbers<T>();
  }
  Tables tables(int field) const {
    const auto at = place(field);
    return at ? Tables(*bytes_, bytes_->follow(*at)) : Tables();
  }
  /// A string, cut after `most` bytes.
  std::string text(int field, std::size_t most) const {
    const std::span<const std::byte> all = numbers<char>(field).bytes();
    return {reinterpret_cast<const char*>(all.data()), std::min(most, all.size())};
  }

 private:
  std::optional<std::size_t> place(int field) const {
    const std::size_t entry = 4 + 2 * static_cast<std::size_t>(field);
    if (entry + 2 > vtable_size_) return std::nullopt;
    const auto offset = bytes_->read<std::uint16_t>(vtable_ + entry);
    if (offset == 0) return std::nullopt;
    return at_ + offset;
  }

  const Bytes* bytes_;
  std::size_t at_, vtable_ = 0, vtable_size_ = 0;
};

inline Table Tables::operator[](std::size_t i) const {
  check(bytes_ != nullptr && i < size(), "table {} of {} is read", i, size());
  return {*bytes_, bytes_->follow(at_ + 4 + i * sizeof(std::uint32_t))};
}

}  // namespace sardonyx::tflite
