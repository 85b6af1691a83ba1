// Data parallelism: one model on several devices, each of which computes a part of the batch.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/model.h"

namespace sardonyx {

/// The same model on several devices. The batch is the symbol that is the first dim of the first input that has one
/// there ("batch" of x [batch, 3, 224, 224]); inputs with this first dim are divided, others are copied to each device,
/// and all outputs must have it as their first dim. Parts of the batch differ by at most one row; with fewer rows than
/// devices, some devices are idle. All members are safe from many threads at once.
class Replicas {
 public:
  /// Throws Error: kInvalidArgument for no devices, kUnsupported if the model has no batch that can be divided.
  explicit Replicas(std::vector<std::shared_ptr<Model>> models);
  /// Compiles `model` for each device. Throws as Model::load does.
  static std::unique_ptr<Replicas> load(const std::filesystem::path& path, ModelOptions options,
                                        const std::vector<std::string>& devices);

  /// The model on the first device, to query inputs and outputs.
  Model& front() const { return *models_.front(); }
  std::vector<std::string> device_names() const;
  /// The name of the dim that is divided.
  const std::string& batch() const { return batch_; }
  /// The number of rows of a batch that each device gets.
  std::vector<std::int64_t> parts(std::int64_t batch) const;

  /// Runs on inputs in host memory, in the order of front().inputs(); returns the outputs in order. Throws as
  /// Model::run does, with the device's name before the message.
  std::vector<HostTensor> run(const std::vector<TensorView>& inputs, const RunOptions& options = {}) const;
  std::vector<HostTensor> run(const std::map<std::string, HostTensor>& inputs, const RunOptions& options = {}) const;

 private:
  std::vector<std::shared_ptr<Model>> models_;
  std::string batch_;
  std::vector<bool> divided_;  ///< by input
};

}  // namespace sardonyx
