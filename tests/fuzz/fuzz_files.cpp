// libFuzzer target: any bytes, as a file of tensors (tensor_files/tensor_files.h). The first byte says which: .npy,
// .npz or .pb. They must be refused with an Error that is not an internal one, or give tensors whose elements can all
// be read and that are written and read again unchanged.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "support/error.h"
#include "tensor_files/tensor_files.h"

namespace sardonyx {
namespace {

namespace fs = std::filesystem;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// A folder in memory that goes when the process ends.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path().string()) + "/fuzz-XXXXXX";
    require(::mkdtemp(name.data()) != nullptr, "a folder for files can be made");
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

void try_file(const fs::path& file) {
  // What a model would say of its inputs; it decides what raw elements are.
  static const DTypeOf wanted = {{"x", DType::kBFloat16}, {"y", DType::kFloat32}, {"z", DType::kInt4}};
  for (const DTypeOf* types : {static_cast<const DTypeOf*>(nullptr), &wanted}) {
    NamedTensors tensors;
    try {
      tensors = read_tensors(file, types);
    } catch (const Error& e) {
      require(e.kind() != ErrorKind::kInternal && e.kind() != ErrorKind::kIo, e.what());
      continue;
    }
    unsigned sum = 0;
    for (const auto& [name, t] : tensors)
      for (std::size_t k = 0; k < t.bytes(); ++k) sum += static_cast<const unsigned char*>(t.data)[k];
    static volatile unsigned sink;
    sink = sum;
    if (file.extension() == ".npy" || tensors.empty()) continue;
    const fs::path again = file.parent_path() / ("again" + file.extension().string());
    DTypeOf same;
    for (const auto& [name, t] : tensors) same[name] = t.dtype;
    write_tensors(again, tensors);
    const NamedTensors read = read_tensors(again, &same);
    require(read.size() == tensors.size(), "what is written is read again");
    for (std::size_t k = 0; k < read.size(); ++k) {
      const Tensor &a = tensors[k].second, &b = read[k].second;
      require(a.dtype == b.dtype && a.dims == b.dims && (a.bytes() == 0 || std::memcmp(a.data, b.data, a.bytes()) == 0),
              "a tensor that is written is read unchanged");
    }
  }
}

}  // namespace
}  // namespace sardonyx

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sardonyx;
  static const Folder folder;
  if (size == 0) return 0;
  const char* const names[] = {"f.npy", "f.npz", "f.pb"};
  const fs::path file = folder.path / names[data[0] % 3];
  write_file(file, {reinterpret_cast<const char*>(data) + 1, size - 1});
  try_file(file);
  return 0;
}
