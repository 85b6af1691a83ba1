// See external_data.h. Locations are resolved before opening (canonical path under a root) and the opened file is
// checked to be a regular one, so neither `..`, links, devices nor pipes are followed out of the model's folder.
#include "onnx/external_data.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include "onnx/packing.h"
#include "onnx/split.h"
#include "onnx/text.h"
#include "support/error.h"

namespace sardonyx::onnx {
namespace fs = std::filesystem;
namespace {

bool is_under(const fs::path& path, const fs::path& root) {
  const auto [r, p] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  return r == root.end() || (r->empty() && std::next(r) == root.end());
}

}  // namespace

bool is_aligned(const void* data, std::size_t size) {
#if defined(__x86_64__)
  // Vector code that reads large tensors needs no alignment on this CPU, and copying them would double a model's
  // memory.
  if (size >= kSplitBytes) return true;
#endif
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

Bytes converted_copy(const void* source, DType dtype, std::size_t elements) {
  const std::size_t size = elements * size_of(dtype);
  auto* block = static_cast<std::byte*>(
      std::aligned_alloc(model::kAlignment, (size / model::kAlignment + 1) * model::kAlignment));
  if (block == nullptr) throw std::bad_alloc();
  std::shared_ptr<const void> owner(block, [](const void* p) { std::free(const_cast<void*>(p)); });
  const auto* in = static_cast<const std::byte*>(source);
  if (is_packed(dtype))
    unpack(dtype, in, elements, block);
  else if (dtype == DType::kBool)
    std::transform(in, in + size, block, [](std::byte b) { return std::byte{b != std::byte{0}}; });
  else if (size > 0)
    std::memcpy(block, source, size);
  return {std::move(owner), block, size};
}

ExternalFiles::File& ExternalFiles::open(const std::string& location, const std::string& tensor) {
  if (const auto found = by_location_.find(location); found != by_location_.end()) return *found->second;
  if (roots_.empty())
    fail(ErrorKind::kInvalidModel,
         "{} keeps its data in the file {}, but a model from memory has no folder: load it by its path", tensor,
         quote(location));
  const fs::path relative(location);
  if (location.empty() || location.find('\0') != std::string::npos || relative.is_absolute() ||
      std::find(relative.begin(), relative.end(), "..") != relative.end())
    fail(ErrorKind::kInvalidModel, "{} keeps its data in {}: that must be a path inside the model's folder", tensor,
         quote(location));
  std::error_code error;
  const fs::path resolved = fs::canonical(roots_.front() / relative, error);
  if (error)
    fail(ErrorKind::kIo, "{} keeps its data in {}: {}", tensor, quote((roots_.front() / relative).native()),
         error.message());
  if (std::none_of(roots_.begin(), roots_.end(), [&](const fs::path& root) { return is_under(resolved, root); }))
    fail(ErrorKind::kInvalidModel,
         "{} keeps its data in {}, a link that leaves the model's folder: put the file itself beside the model", tensor,
         quote(location));
  File& file = files_[resolved];
  try {
    if (file.map == nullptr) file.map = std::make_shared<const MappedFile>(resolved);
  } catch (const Error& e) {
    throw Error(e.kind(), tensor + " keeps its data in another file: " + e.what());
  }
  by_location_[location] = &file;
  return file;
}

Bytes ExternalFiles::read(const std::string& location, std::uint64_t offset, DType dtype, std::uint64_t elements,
                          const std::string& tensor) {
  const auto in_memory = memory_.find(location);
  File* file = in_memory == memory_.end() ? &open(location, tensor) : nullptr;
  const Bytes whole = file != nullptr ? Bytes{file->map, file->map->data(), file->map->size()} : in_memory->second;
  const std::uint64_t size = whole.size, length = packed_size(dtype, elements);
  if (offset > size || length > size - offset)
    fail(ErrorKind::kInvalidModel,
         "{} needs {} bytes from {} of {}, which has {}: the file is incomplete or not this model's", tensor, length,
         offset, quote(location), size);
  const std::byte* begin = whole.data + offset;
  const bool aligned = is_aligned(begin, length);
  if (aligned && !is_packed(dtype) && dtype != DType::kBool) return {whole.owner, begin, length};
  if (file == nullptr) return converted_copy(begin, dtype, elements);
  Bytes& copy = file->copies[{offset, elements, dtype}];
  if (copy.owner == nullptr) {
    file->copied += length;
    if (file->copied > 2 * size)
      fail(ErrorKind::kInvalidModel, "{}: the tensors in {} overlap each other; save the model's external data again",
           tensor, quote(location));
    copy = converted_copy(begin, dtype, elements);
  }
  return copy;
}

}  // namespace sardonyx::onnx
