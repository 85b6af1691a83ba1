// Running a program on the host.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "compile/host_module.h"
#include "device/device.h"
#include "host/tile_kernel.h"
#include "program/program.h"
#include "sardonyx/options.h"
#include "sardonyx/tensor.h"
#include "support/error.h"

namespace sardonyx {

using HostTensor = Tensor;
inline HostTensor allocate_tensor(DType dtype, std::vector<std::int64_t> dims) {
  return Tensor::allocate(dtype, std::move(dims));
}

/// Where temporaries lie in the arena for given values of the symbols.
struct ArenaPlan {
  std::vector<std::pair<int, std::size_t>> offsets;  ///< buffer, offset in bytes
  std::size_t total = 0;                             ///< bytes
  /// Temporaries whose size is known only in the course of a run; they are allocated when they are written.
  int unplanned = 0;
};

/// The program was made for sizes that these are not (CheckOp::assumption): compile it for these.
class AssumptionFailed : public Error {
 public:
  explicit AssumptionFailed(const std::string& message) : Error(ErrorKind::kInvalidArgument, message) {}
};

/// A program made ready: code linked, constants computed. run() is safe from many threads at once.
class Executor {
 public:
  /// `gpu`: what runs it, for a program of a GPU's code; null for the host's.
  Executor(std::shared_ptr<const Program> program, int threads, std::shared_ptr<Gpu> gpu = nullptr);
  ~Executor();

  const Program& program() const { return *program_; }
  /// Inputs in the order of input_names; dtypes and dims are checked against the declaration. Returns outputs in the
  /// order of output_names.
  std::vector<HostTensor> run(const std::vector<HostTensor>& inputs, const RunOptions& options = {});
  /// Values of the symbols for inputs of these dims. Throws Error(kInvalidArgument) when ranks or dims don't fit the
  /// declaration.
  SymbolValues bind(const std::vector<std::vector<std::int64_t>>& input_dims) const;
  /// The outputs' dims for such values; -1 where one is known only in the course of a run.
  std::vector<std::vector<std::int64_t>> output_dims(const SymbolValues& symbols) const;
  /// Bytes of constants, and of the largest arena so far.
  std::size_t constant_bytes() const { return constant_bytes_; }
  std::size_t arena_bytes() const { return arena_bytes_; }
  /// What run() does for inputs that give symbols these values. Throws Error(kInvalidArgument) for sizes that make no
  /// tensor.
  ArenaPlan plan(const SymbolValues& symbols) const;

 private:
  struct Context;
  struct Plan;
  struct Run;
  struct Lives;
  void load_code();
  void place_constants();
  void find_lives(const Block& block, const std::vector<bool>& inputs);
  std::unique_ptr<Context> acquire();
  void release(std::unique_ptr<Context> c);

  std::shared_ptr<const Program> program_;
  int threads_;
  std::shared_ptr<Gpu> gpu_;
  std::unique_ptr<HostModule> module_;
  std::vector<std::shared_ptr<GpuModule>> gpu_modules_;
  std::vector<void*> kernels_;
  std::map<const Block*, std::unique_ptr<Lives>> lives_;
  int step_count_ = 0;  ///< of all blocks
  std::vector<std::shared_ptr<const void>> constant_owners_;
  std::vector<const void*> constants_;  ///< by buffer; on the device
  std::size_t constant_bytes_ = 0;
  std::size_t arena_bytes_ = 0;
  std::mutex mutex_;
  std::mutex packed_mutex_;
  std::map<int, std::shared_ptr<host::PackedWeights>> packed_;  ///< constant weights of tile kernels, by buffer
  std::vector<std::unique_ptr<Context>> idle_;
};

}  // namespace sardonyx
