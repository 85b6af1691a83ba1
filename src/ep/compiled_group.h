// A group of nodes as a compiled model, shared by all sessions of the process that have the same group, weights and
// options.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/model.h"
#include "ep/graph_reader.h"
#include "ep/options.h"
#include "ep/provider_device.h"

namespace sardonyx::ep {

struct CompiledGroup {
  std::shared_ptr<ProviderDevice> device;
  std::unique_ptr<Model> model;
  std::vector<std::string> inputs, outputs;  ///< names, in the model's order
  std::vector<DType> input_types;
};

/// The options of the library that a session's options come to.
ModelOptions model_options(const ProviderOptions& options, const ProviderDevice& device);

/// Compiles a group, or finds it compiled by another session. Throws Error.
std::shared_ptr<CompiledGroup> compile_group(GroupModel group, const ProviderOptions& options,
                                             const std::shared_ptr<ProviderDevice>& device);

/// Compiled groups that are in use in this process now.
std::size_t groups_in_use();

}  // namespace sardonyx::ep
