// What a model became: its kernels, which of the model's nodes they compute, and the memory they need. For `sardonyx
// inspect`, `perf` and tests that bound the number of kernels.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/executor.h"

namespace sardonyx {

/// A tensor that a step reads or writes.
struct ReportTensor {
  int buffer = 0;
  std::string name;  ///< the model's name, or "" for one of ours
  DType dtype = DType::kFloat32;
  std::vector<std::string> shape;  ///< numbers, or expressions of symbols
  bool constant = false;
};

struct StepReport {
  enum class Kind { kLoop, kTile, kRoutine, kBind, kCheck, kIf, kWhile };
  Kind kind = Kind::kLoop;
  std::string name;  ///< symbol of the loop kernel, "gemm", "conv" or "attention", name of the routine; "" for others
  std::vector<std::string> nodes;  ///< the model's nodes it computes: "conv1 (Conv)"
  std::vector<ReportTensor> reads, writes;
  int kernel = -1;  ///< index into Program::kernels, of loops
  /// On a GPU, of steps that need the CPU: why. It waits for what was launched before, and the run is not one graph.
  std::string cpu;
  int depth = 0;  ///< 1: in a branch or loop body of the model, and so on
};

/// "loop", "tile", "routine", "bind", "check", "if", "while".
const char* name(StepReport::Kind kind);
/// Whether a step of this kind is a launch: a loop kernel, a tile kernel or a routine.
bool is_launch(StepReport::Kind kind);

struct ProgramReport {
  std::vector<StepReport> steps;  ///< in the order of execution; steps of nested blocks follow the step that runs them
  int kernels_per_run = 0;
  int init_launches = 0;       ///< of constants only, when the program is made ready
  std::size_t code_bytes = 0;  ///< of machine code, as object files
};

/// Launches of one run: loop kernels, tile kernels and routines, but no binds of symbols, checks or views. Of an If the
/// branch with more launches counts, of a loop one iteration.
int kernels_per_run(const Program& program);
ProgramReport report(const Program& program);

/// Bytes of one run.
struct MemoryReport {
  std::size_t weights = 0;  ///< constants, those computed when the program was made ready included
  std::size_t inputs = 0, outputs = 0;
  std::size_t arena = 0;        ///< temporaries, which share memory when they do not live at the same time
  std::size_t live = 0;         ///< the most of these that lives at a time: no arena could be smaller
  std::size_t temporaries = 0;  ///< the same without sharing
  int unplanned = 0;            ///< temporaries and outputs of sizes that only a run knows; not counted above
};
/// Memory for given sizes of symbolic dims, by name. Throws Error(kInvalidArgument) for an unknown dim, or one that is
/// missing.
MemoryReport memory_report(const Executor& executor, const std::map<std::string, std::int64_t>& dims);
/// Symbols that the dims of inputs are made of.
std::vector<std::string> input_symbols(const Program& program);

}  // namespace sardonyx
