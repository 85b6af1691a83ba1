// A code object (ELF for amdgcn-amd-amdhsa) parsed and loaded into device memory, with its kernels.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/exec/code_image.h"
#include "sim/isa/chip.h"

namespace sardonyx::sim {

/// One kernel argument, from the metadata.
struct KernelArg {
  std::uint32_t offset = 0, size = 0;
  std::string kind;  ///< value_kind: "by_value", "global_buffer", "dynamic_shared_pointer", "hidden_block_count_x", ...
  bool hidden() const { return kind.compare(0, 7, "hidden_") == 0; }
};

/// What a launch needs to know of a kernel: its descriptor (LLVM's AMDGPU guide, "Kernel Descriptor") and its metadata.
struct Kernel {
  std::string name;
  std::string shown;             ///< what people call it: demangled, without parameters
  std::uint64_t descriptor = 0;  ///< device address of the 64-byte descriptor
  std::uint64_t entry = 0;       ///< device address of the first instruction
  std::uint32_t groupBytes = 0, privateBytes = 0, kernargBytes = 0;
  std::uint32_t rsrc1 = 0, rsrc2 = 0, rsrc3 = 0;
  std::uint16_t properties = 0, preload = 0;
  int waveSize = 64;
  bool dynamicStack = false;
  std::uint32_t maxWorkgroup = 1024;
  std::uint32_t requiredWorkgroup[3] = {};
  std::vector<KernelArg> args;
  int vgprs = 0, agprs = 0, sgprs = 0;
  CodeImage* image = nullptr;
  std::uint32_t explicitBytes() const;  ///< end of the last argument that the caller passes
};

struct DeviceSymbol {
  std::uint64_t address = 0, size = 0;
};

class CodeObject {
 public:
  /// Loads `bytes` for `chip` on `device`. Throws Error(kInvalidArgument) for a malformed file or one for another chip.
  CodeObject(std::string_view bytes, const Chip& chip, int device);
  ~CodeObject();
  CodeObject(const CodeObject&) = delete;
  CodeObject& operator=(const CodeObject&) = delete;

  const Kernel* kernel(const std::string& name) const;
  const DeviceSymbol* symbol(const std::string& name) const;
  std::uint64_t base() const { return base_; }
  std::uint64_t size() const { return size_; }
  /// "file.cpp:12" of a code address when the object has line tables, else "".
  std::string sourceLine(std::uint64_t pc) const;

 private:
  void readSegments(std::string_view bytes);
  void readSymbols();
  void readMetadata();
  void relocate();
  void finishKernel(Kernel& k);

  const Chip& chip_;
  int device_;
  struct Parsed;
  std::unique_ptr<Parsed> parsed_;
  std::uint64_t base_ = 0, size_ = 0;
  std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels_;
  std::unordered_map<std::string, DeviceSymbol> symbols_;
  std::unique_ptr<CodeImage> images_[2];  // wave32, wave64
};

/// True when `bytes` starts like an offload bundle ("__CLANG_OFFLOAD_BUNDLE__"; compressed bundles start with "CCOB").
bool isOffloadBundle(std::string_view bytes);
/// The code object for `chip` in an uncompressed or compressed bundle. Throws Error when there is none, naming what
/// there is.
std::string extractFromBundle(std::string_view bytes, const Chip& chip);
/// Bytes of the ELF file or bundle that starts at `image`, which C APIs pass without a size. 0 when it is neither.
std::size_t imageSize(const void* image);

}  // namespace sardonyx::sim
