// Describes a program: its kernels, the model's nodes that each computes, and memory. For `sardonyx inspect`, `perf`
// and tests that bound the number of kernels.
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
  /// Why a step of a GPU program needs the CPU. It waits for the launches before it, and the run is not one graph.
  std::string cpu;
  int depth = 0;  ///< nesting: 1 in a branch or loop body of the model
};

/// "loop", "tile", "routine", "bind", "check", "if", "while".
const char* name(StepReport::Kind kind);
/// Whether a step of this kind is a launch: a loop kernel, a tile kernel or a routine.
bool is_launch(StepReport::Kind kind);

struct ProgramReport {
  std::vector<StepReport> steps;  ///< in order of execution; steps of nested blocks follow the step that runs them
  int kernels_per_run = 0;
  int init_launches = 0;       ///< launches that compute constants when the program is loaded
  std::size_t code_bytes = 0;  ///< of machine code, as object files
};

/// Launches of one run: loop kernels, tile kernels and routines, but no binds of symbols, checks or views. Of an If,
/// counts the branch with more launches; of a loop, one iteration.
int kernels_per_run(const Program& program);
ProgramReport report(const Program& program);

/// Memory of one run, in bytes.
struct MemoryReport {
  std::size_t weights = 0;  ///< constants, including computed ones
  std::size_t inputs = 0, outputs = 0;
  std::size_t arena = 0;        ///< temporaries; those with disjoint lifetimes share memory
  std::size_t live = 0;         ///< maximum of these alive at the same time: a lower bound of `arena`
  std::size_t temporaries = 0;  ///< sum of all temporaries, without sharing
  int unplanned = 0;            ///< temporaries and outputs whose size is known only at run time; not counted above
};
/// Memory for given sizes of symbolic dims, by name. Throws Error(kInvalidArgument) for an unknown or missing dim.
MemoryReport memory_report(const Executor& executor, const std::map<std::string, std::int64_t>& dims);
/// Symbols that occur in the dims of inputs.
std::vector<std::string> input_symbols(const Program& program);

}  // namespace sardonyx
