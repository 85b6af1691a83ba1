// EPContext models: groups compiled ahead of time for one or several architectures, stored in a node's attribute or in
// a file beside the model.
//
//   "SDXCTX02"  inputs, outputs: counted names, in the fused node's order; targets of the programs
//   programs    a program file (program/program_file.h) aligned to 64 bytes, with the weights once
//
// Numbers are little-endian. As in program files, machine code is checked for damage and otherwise trusted.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ep/compiled_group.h"
#include "ep/ort.h"

namespace sardonyx::ep {

inline constexpr char kContextOp[] = "EPContext";
inline constexpr char kContextDomain[] = "com.microsoft";

struct ContextNames {
  std::vector<std::string> inputs, outputs;  ///< in the fused node's order
};

/// A container with a group's programs.
std::string write_context(const ContextNames& names, const std::vector<std::shared_ptr<const Program>>& programs);

/// Loads the program of a container for a device. `bytes` must be aligned to 64 and stay valid while `owner` lives.
/// Throws Error: kInvalidModel if it is damaged; kUnsupported, with its contents, if it is for other architectures or
/// another version of Sardonyx.
std::shared_ptr<CompiledGroup> read_context(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                            const ProviderOptions& options,
                                            const std::shared_ptr<ProviderDevice>& device, ContextNames& names);

/// Whether a node is an EPContext node of this provider; throws Error(kUnsupported) for one of another provider.
bool is_context(const Ort& ort, const OrtNode* n);
/// Loads the group in the node. `graph`: the node's graph, for the directory of the model.
std::shared_ptr<CompiledGroup> load_context(const Ort& ort, const OrtNode* n, const OrtGraph* graph,
                                            const ProviderOptions& options,
                                            const std::shared_ptr<ProviderDevice>& device, ContextNames& names);
/// The part of the original model that the node replaces, for recompiling. `options.context_rebuild`: the file, or "1"
/// for the file that the node names, in the directory of the EPContext model. Throws Error if there is none or it does
/// not match; see original_model.h.
GroupModel original_of(const Ort& ort, const OrtNode* n, const OrtGraph* graph, const ProviderOptions& options);

/// The compatibility string that ONNX Runtime stores with a compiled model: version, format and targets of the
/// programs.
std::string compatibility_info(const std::vector<std::string>& targets);
/// Whether a model with this compatibility string runs on one of the devices.
OrtCompiledModelCompatibility compatibility(std::string_view info,
                                            const std::vector<std::shared_ptr<ProviderDevice>>& devices);

/// The EPContext node that replaces a fused node, with the container inside or in a file in the model's directory.
OrtNode* make_context_node(const Ort& ort, const OrtNode* fused, const OrtGraph* graph, const ContextNames& names,
                           const std::vector<std::shared_ptr<const Program>>& programs, const ProviderOptions& options);

}  // namespace sardonyx::ep
