// The commands. Each prints its result on stdout and throws Error; see docs/command-line.md.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "api/model.h"
#include "cli/inputs.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace sardonyx::cli {

void run_command(const Options& options);
void verify_command(const Options& options);
void perf_command(const Options& options);
void tune_command(const Options& options);
void compile_command(const Options& options);
void inspect_command(const Options& options);
void devices_command(const Options& options);
void cache_command(const Options& options);
/// generate and convert-gguf. Returns only by an error.
void language_command(const Options& options);

/// A loaded model and how long the stages of loading took.
struct Loaded {
  std::shared_ptr<Model> model;
  struct Stage {
    std::string name;  ///< "reading", "importing", "compiling"
    double seconds = 0;
  };
  std::vector<Stage> stages;
  double seconds = 0;  ///< all of them
};
/// Loads and compiles with progress on stderr.
Loaded load_model(const Options& options, bool all_outputs = false);

/// The model's inputs with the sizes that --fix gives them.
Inputs inputs_for(const Model& model, const Options& options);

/// The program for these inputs; shows progress if it must be compiled first.
std::shared_ptr<Executor> program_for(Model& model, const Inputs& inputs, bool quiet);

/// "float32 [2, 3]".
std::string type_text(DType dtype, const std::vector<std::int64_t>& dims);
std::string type_text(DType dtype, const std::vector<std::string>& dims);

/// Writes text to a file, or to stdout if the name is "-".
void write_text(const std::string& file, const std::string& text);

}  // namespace sardonyx::cli
