// Runs of a model whose inputs and outputs stay in GPU memory, so that only the device's work is measured.
#pragma once
#include <memory>
#include <vector>

#include "api/model.h"
#include "cli/inputs.h"

namespace sardonyx::cli {

class ResidentRuns {
 public:
  /// Copies the inputs to the GPU. Throws Error(kUnsupported) for a model on the host, which has no separate memory.
  ResidentRuns(Model& model, const Inputs& inputs);
  /// Enqueues a run. Outputs reuse the memory of the last run's if they have the same size.
  void start();
  /// Waits for all enqueued runs.
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

/// Seconds per run if runs are enqueued without waiting between them.
struct BackToBack {
  std::vector<double> groups;  ///< sorted: mean of each group of runs
  int runs = 0;                ///< per group
};
/// `one`: seconds of a run including the wait; `seconds`: how long to measure, at least a few groups.
BackToBack back_to_back(ResidentRuns& runs, double one, double seconds);

}  // namespace sardonyx::cli
