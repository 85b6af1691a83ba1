// A compiled group of nodes, shared by all sessions of the process with an equal group, weights and options.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/model.h"
#include "ep/graph_reader.h"
#include "ep/provider_device.h"
#include "options/provider_options.h"

namespace sardonyx::ep {

struct CompiledGroup {
  std::shared_ptr<ProviderDevice> device;
  std::unique_ptr<Model> model;
  std::vector<std::string> inputs, outputs;  ///< names, in the model's order
  std::vector<DType> input_types;
};

/// The library's options for a session's options.
ModelOptions model_options(const ProviderOptions& options, const ProviderDevice& device);

/// The options on which a group's program depends, as text, with the content of the calibration table.
std::string group_settings(const Options& options);

/// Compiles a group, or returns one that another session compiled. Throws Error.
std::shared_ptr<CompiledGroup> compile_group(GroupModel group, const ProviderOptions& options,
                                             const std::shared_ptr<ProviderDevice>& device);

/// The number of compiled groups in use in this process.
std::size_t groups_in_use();

}  // namespace sardonyx::ep
