// Running graphs with custom operators: the instructions between them are compiled as programs, and all run in order.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "migraphx/program.h"

namespace sardonyx {
class Gpu;
}

namespace sardonyx::mgx {

/// A compiled main module. run() is thread-safe if the application's operators are.
class Stages {
 public:
  /// Throws Error as MigraphxProgram::compile().
  Stages(const Module& main, const std::string& precision, const migraphx_target& target,
         const migraphx_compile_options& options);

  /// Returns when the results are complete. `stream`: of the device, null on the host; custom operators get it from
  /// `context`. Throws Error: kInvalidArgument for missing parameters and those that don't fit, kUnsupported for a
  /// custom operator that fails.
  std::vector<migraphx_argument> run(const Arguments& parameters, void* stream, migraphx_context* context) const;

  /// Null on the host.
  Gpu* gpu() const { return gpu_.get(); }
  void* stream() const { return stream_.get(); }

 private:
  struct Stage {
    InstructionPtr custom;  ///< null: a part that is compiled
    MigraphxProgram part;
    std::vector<Result> inputs;        ///< of a part, by their names
    std::vector<std::string> outputs;  ///< of a part
    bool on_host = false;              ///< a custom operator that computes in host memory beside a GPU
  };
  using Values = std::map<std::string, migraphx_argument>;

  void add_part(const Module& main, const std::vector<InstructionPtr>& instructions, std::size_t end);
  Values parameters_of(const Arguments& given) const;
  void run_custom(const Stage& s, Values& values, void* stream, migraphx_context* context) const;
  migraphx_argument input_of(const Stage& s, const Instruction& i, const Values& values, void* stream) const;

  std::string precision_;
  migraphx_target target_;
  migraphx_compile_options options_;
  std::shared_ptr<Gpu> gpu_;
  std::shared_ptr<void> stream_;
  std::vector<Parameter> inputs_;
  std::vector<Result> results_;
  Values constants_;  ///< literals that custom operators or results use, in host memory
  std::vector<Stage> stages_;
};

}  // namespace sardonyx::mgx
