// Weights by content; see weights.h.
#include "ep/weights.h"

#include <sys/stat.h>

#include <array>
#include <cstring>

#include "compile/cache.h"
#include "ep/process_wide.h"
#include "onnx/external_data.h"
#include "onnx/packing.h"
#include "support/error.h"

namespace sardonyx::ep {
namespace {

std::size_t count(const std::vector<std::int64_t>& dims) {
  std::size_t n = 1;
  for (const std::int64_t d : dims) n *= static_cast<std::size_t>(d);
  return n;
}

}  // namespace

Weights& Weights::instance() { return process_wide<Weights>(); }

model::Bytes Weights::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto it = held_.find(key);
  if (it == held_.end()) return {};
  if (auto owner = it->second.owner.lock()) return {std::move(owner), it->second.data, it->second.size};
  held_.erase(it);
  return {};
}

model::Bytes Weights::keep(const std::string& key, model::Bytes bytes) {
  const std::lock_guard lock(mutex_);
  Held& h = held_[key];
  if (auto owner = h.owner.lock()) return {std::move(owner), h.data, h.size};  // another thread has stored it meanwhile
  h = {bytes.owner, bytes.data, bytes.size};
  std::erase_if(held_, [](const auto& e) { return e.second.owner.expired(); });
  return bytes;
}

model::Tensor Weights::copy(const std::string& name, DType dtype, std::vector<std::int64_t> dims, const void* data,
                            std::string& key) {
  const std::size_t n = count(dims);
  const std::size_t stored = onnx::packed_size(dtype, n);
  const std::string kind = std::to_string(static_cast<int>(dtype));
  const std::array<std::string_view, 3> parts = {"weights", kind,
                                                 std::string_view(static_cast<const char*>(data), stored)};
  key = cache_key(parts).hex();
  model::Bytes bytes = find(key);
  if (!bytes.data) bytes = keep(key, onnx::converted_copy(data, dtype, n));
  return model::tensor_of(name, dtype, std::move(dims), std::move(bytes));
}

model::Tensor Weights::map(const std::string& name, DType dtype, std::vector<std::int64_t> dims,
                           const std::filesystem::path& file, std::uint64_t offset, std::uint64_t bytes,
                           std::string& key) {
  const std::size_t n = count(dims);
  struct stat s{};
  if (::stat(file.c_str(), &s) != 0) fail(ErrorKind::kIo, "initializer '{}': can't read {}", name, file.string());
  const std::string id =
      fmt::format("{}:{}:{}:{}.{:09}", static_cast<std::uint64_t>(s.st_dev), static_cast<std::uint64_t>(s.st_ino),
                  static_cast<std::uint64_t>(s.st_size), static_cast<std::int64_t>(s.st_mtim.tv_sec),
                  static_cast<std::int64_t>(s.st_mtim.tv_nsec));
  key = fmt::format("{}@{}+{}:{}", id, offset, bytes, static_cast<int>(dtype));
  std::shared_ptr<const MappedFile> map;
  {
    const std::lock_guard lock(mutex_);
    map = files_[id].lock();
    if (!map) files_[id] = map = std::make_shared<const MappedFile>(file);
    std::erase_if(files_, [](const auto& f) { return f.second.expired(); });
  }
  if (bytes != onnx::packed_size(dtype, n) || offset > map->size() || bytes > map->size() - offset)
    fail(ErrorKind::kInvalidModel, "initializer '{}': {} bytes at {} of {} are not what its shape needs", name, bytes,
         offset, file.string());
  const std::byte* at = map->data() + offset;
  if (!onnx::is_packed(dtype) && onnx::is_aligned(at, bytes))
    return model::tensor_of(name, dtype, std::move(dims), {map, at, static_cast<std::size_t>(bytes)});
  model::Bytes b = find(key);
  if (!b.data) b = keep(key, onnx::converted_copy(at, dtype, n));
  return model::tensor_of(name, dtype, std::move(dims), std::move(b));
}

Weights::Use Weights::use() {
  const std::lock_guard lock(mutex_);
  Use u;
  for (const auto& [key, h] : held_)
    if (!h.owner.expired()) {
      ++u.buffers;
      u.bytes += h.size;
    }
  return u;
}

}  // namespace sardonyx::ep
