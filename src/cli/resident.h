// Runs of a model whose inputs and outputs stay in the memory of its GPU, so that what is measured is the device's
// work.
#pragma once
#include <memory>
#include <vector>

#include "api/model.h"
#include "cli/inputs.h"

namespace sardonyx::cli {

class ResidentRuns {
 public:
  /// Copies the inputs to the card. Throws Error(kUnsupported) for a model of the host, whose memory is the only one.
  ResidentRuns(Model& model, const Inputs& inputs);
  /// Gives one run to the stream. Outputs lie where those of the last run did, if they are of the same size.
  void start();
  /// Waits for all that was started.
  void wait();

 private:
  struct Place {
    std::shared_ptr<void> memory;
    std::size_t bytes = 0;
  };
  Model& model_;
  Device device_;
  std::shared_ptr<void> stream_;
  std::vector<std::shared_ptr<void>> memory_;  // of inputs
  std::vector<TensorView> inputs_;
  std::vector<Place> outputs_;
};

/// Seconds of one run when runs are given to the stream without waiting between them.
struct BackToBack {
  std::vector<double> groups;  ///< sorted: of each group of runs, the mean
  int runs = 0;                ///< of a group
};
/// `one`: seconds of a run that is waited for; `seconds`: how long to measure, at least a few groups.
BackToBack back_to_back(ResidentRuns& runs, double one, double seconds);

}  // namespace sardonyx::cli
