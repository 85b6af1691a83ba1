// Serialisation of plain data. A struct is described once, by a function fields(archive, struct) that names its
// members. Writer and Reader both use it, so they cannot disagree.
//
//   template <typename A> void fields(A& a, typename A::template Ref<TensorRef> t) { a(t.buffer, t.shape); }
//
// Integers are LEB128 (signed ones zigzag), floats their bits; strings and lists begin with their length. Reader
// accepts untrusted bytes: it throws Error(kInvalidModel) for anything that Writer would not write, and its memory is
// bounded by a small multiple of the number of bytes.
#pragma once
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "expr/table.h"
#include "support/error.h"

namespace sardonyx {

/// The number of values of an enum, which are 0 to kCount - 1. Specialise it for each enum that is written.
template <typename E>
struct EnumRange;
template <>
struct EnumRange<DType> {
  static constexpr int kCount = kDTypeCount;
};

class Writer {
 public:
  template <typename T>
  using Ref = const T&;

  /// Expressions are written as indices into `table`.
  explicit Writer(ExprTable& table) : table_(table) {}
  template <typename... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  void bytes(std::string_view b) { out_.append(b); }
  const std::string& out() const { return out_; }

 private:
  void number(std::uint64_t v) {
    for (; v >= 128; v >>= 7) out_.push_back(static_cast<char>(v | 128));
    out_.push_back(static_cast<char>(v));
  }
  void fixed(std::uint64_t v, int size) {
    for (int k = 0; k < size; ++k) out_.push_back(static_cast<char>(v >> (8 * k)));
  }
  void put(std::uint64_t v) { number(v); }
  void put(std::uint32_t v) { number(v); }
  void put(std::uint8_t v) { fixed(v, 1); }
  void put(bool v) { fixed(v, 1); }
  void put(std::int64_t v) { number((static_cast<std::uint64_t>(v) << 1) ^ static_cast<std::uint64_t>(v >> 63)); }
  void put(int v) { put(static_cast<std::int64_t>(v)); }
  void put(double v) { fixed(std::bit_cast<std::uint64_t>(v), 8); }
  void put(float v) { fixed(std::bit_cast<std::uint32_t>(v), 4); }
  void put(const std::string& v) {
    number(v.size());
    out_ += v;
  }
  void put(const Expr& e) { number(e ? std::uint64_t{table_.add(e)} + 1 : 0); }
  template <typename T>
  void put(const std::vector<T>& list) {
    number(list.size());
    for (const T& v : list) put(v);
  }
  template <typename... T>
  void put(const std::variant<T...>& v) {
    number(v.index());
    std::visit([this](const auto& alternative) { put(alternative); }, v);
  }
  template <typename T>
  void put(const std::optional<T>& v) {
    put(v.has_value());
    if (v) put(*v);
  }
  template <typename T>
  void put(const std::unique_ptr<T>& p) {
    put(*p);
  }
  template <typename T>
  void put(const T& v) {
    if constexpr (std::is_enum_v<T>) {
      fixed(static_cast<std::uint64_t>(v), 1);
    } else {
      fields(*this, v);
    }
  }

  ExprTable& table_;
  std::string out_;
};

class Reader {
 public:
  template <typename T>
  using Ref = T&;

  /// Maximum nesting of blocks; the importer has a lower limit.
  static constexpr int kMaxDepth = 64;

  /// Expressions are indices into `table`; it may be null where none can occur.
  Reader(std::span<const std::byte> bytes, const TableReader* table) : bytes_(bytes), table_(table) {}
  void set_table(const TableReader* table) { table_ = table; }
  template <typename... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  /// The next `n` bytes.
  std::span<const std::byte> take(std::uint64_t n) {
    if (n > bytes_.size()) damaged("it ends too early");
    const auto head = bytes_.first(n);
    bytes_ = bytes_.subspan(n);
    return head;
  }
  bool at_end() const { return bytes_.empty(); }

  [[noreturn]] static void damaged(std::string_view what) {
    fail(ErrorKind::kInvalidModel, "the program is damaged: {}", what);
  }

 private:
  std::uint64_t fixed(int size) {
    std::uint64_t v = 0;
    const auto b = take(static_cast<std::uint64_t>(size));
    for (int k = 0; k < size; ++k) v |= static_cast<std::uint64_t>(b[static_cast<std::size_t>(k)]) << (8 * k);
    return v;
  }
  std::uint64_t number() {
    std::uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint64_t b = fixed(1);
      if (shift == 63 && b > 1) break;
      v |= (b & 127) << shift;
      if (b < 128) return v;
    }
    damaged("a number has more than 64 bits");
  }
  /// The length of a list whose elements take at least a byte each.
  std::uint64_t count() {
    const std::uint64_t n = number();
    if (n > bytes_.size()) damaged("a list is longer than the rest of the program");
    return n;
  }
  void get(std::uint64_t& v) { v = number(); }
  void get(std::uint32_t& v) {
    const std::uint64_t n = number();
    if (n > UINT32_MAX) damaged("a number is too large");
    v = static_cast<std::uint32_t>(n);
  }
  void get(std::uint8_t& v) { v = static_cast<std::uint8_t>(fixed(1)); }
  void get(bool& v) {
    const std::uint64_t n = fixed(1);
    if (n > 1) damaged("neither true nor false");
    v = n == 1;
  }
  void get(std::int64_t& v) {
    const std::uint64_t n = number();
    v = static_cast<std::int64_t>((n >> 1) ^ (0 - (n & 1)));
  }
  void get(int& v) {
    std::int64_t n;
    get(n);
    if (n < std::numeric_limits<int>::min() || n > std::numeric_limits<int>::max()) damaged("a number is too large");
    v = static_cast<int>(n);
  }
  void get(double& v) { v = std::bit_cast<double>(fixed(8)); }
  void get(float& v) { v = std::bit_cast<float>(static_cast<std::uint32_t>(fixed(4))); }
  void get(std::string& v) {
    const auto b = take(count());
    v.assign(reinterpret_cast<const char*>(b.data()), b.size());
  }
  void get(Expr& e) {
    const std::uint64_t n = number();
    if (n > 0 && table_ == nullptr) damaged("an expression where none can be");
    e = n > 0 ? table_->at(n - 1) : Expr();
  }
  template <typename T>
  void get(std::vector<T>& list) {
    list.clear();
    // One by one, because there may be fewer elements than the count claims.
    for (std::uint64_t n = count(); n > 0; --n) get(list.emplace_back());
  }
  template <typename... T>
  void get(std::variant<T...>& v) {
    const std::uint64_t wanted = number();
    std::uint64_t index = 0;
    (void)((index++ == wanted ? (get(v.template emplace<T>()), true) : false) || ...);
    if (wanted >= sizeof...(T)) damaged("a step of unknown kind");
  }
  template <typename T>
  void get(std::optional<T>& v) {
    bool has = false;
    get(has);
    if (has)
      get(v.emplace());
    else
      v.reset();
  }
  template <typename T>
  void get(std::unique_ptr<T>& p) {
    if (++depth_ > kMaxDepth) damaged("blocks are nested too deeply");
    p = std::make_unique<T>();
    get(*p);
    --depth_;
  }
  template <typename T>
  void get(T& v) {
    if constexpr (std::is_enum_v<T>) {
      const std::uint64_t n = fixed(1);
      if (n >= static_cast<std::uint64_t>(EnumRange<T>::kCount)) damaged("an unknown kind or type");
      v = static_cast<T>(n);
    } else {
      fields(*this, v);
    }
  }

  std::span<const std::byte> bytes_;
  const TableReader* table_;
  int depth_ = 0;
};

}  // namespace sardonyx
