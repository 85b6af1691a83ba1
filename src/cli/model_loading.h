// Models as the commands load them: with progress on stderr, the times of the stages, and inputs.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "api/model.h"
#include "cli/arguments.h"
#include "cli/inputs.h"

namespace sardonyx::cli {

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
Loaded load_model(const Arguments& arguments, bool all_outputs = false);

/// The model's inputs with the sizes that --fix gives them.
Inputs inputs_for(const Model& model, const Arguments& arguments);

/// The program for these inputs; shows progress if it must be compiled first.
std::shared_ptr<Executor> program_for(Model& model, const Inputs& inputs, bool quiet);

}  // namespace sardonyx::cli
