// A program under construction: numbers its buffers and kernels.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fuse/schedule.h"
#include "graph/graph.h"
#include "lower/build.h"
#include "program/program.h"

namespace sardonyx {

class ProgramBuilder {
 public:
  ProgramBuilder(const Graph& graph, const BuildOptions& options);

  const BuildOptions& options() const { return options_; }
  Program& program() { return *program_; }
  std::shared_ptr<Program> take() { return std::move(program_); }

  /// The number of the buffer that holds a value.
  int buffer(Value* v);
  std::vector<int> buffers(const std::vector<Value*>& values);
  std::vector<TensorRef> refs(const std::vector<Value*>& values);
  /// A new buffer that holds no value of the graph.
  int temporary(DType dtype, const Exprs& shape);
  /// Puts a value that is not the graph's into a temporary. The builder keeps it, because it is known by its address.
  void place(const std::shared_ptr<Value>& value, int buffer);
  /// The number of the kernel with this spec; equal specs share a number.
  int kernel(const KernelSpec& spec);
  /// A step with the origin, reads and writes of `step`, and no operation yet.
  ProgramStep step_like(const Step& step);

  /// Whether a symbol is a dim of an input.
  bool is_input_symbol(std::int64_t symbol) const { return input_symbols_.count(symbol) > 0; }
  /// Set while steps of Program::init are lowered. What they write is in memory before any other step runs.
  bool in_init = false;
  void written_by_init(const Step& step);
  /// Whether a value is in memory before any step of the program's main block runs.
  bool is_loaded(const Value* v) const;

 private:
  const BuildOptions& options_;
  std::shared_ptr<Program> program_;
  std::unordered_map<const Value*, int> ids_;
  std::unordered_map<std::string, std::vector<int>> kernel_ids_;  ///< by text
  std::unordered_set<std::int64_t> input_symbols_;
  std::vector<std::shared_ptr<Value>> placed_;
  std::unordered_set<const Value*> loaded_;  ///< written by steps of init
};

}  // namespace sardonyx
