// EPContext models: groups that were compiled ahead of time, for one or several architectures, in a node's attribute or
// in a file beside the model.
//
//   "SDXCTX02"  inputs, outputs: counted names, as the fused node had them; targets of the programs
//   programs    a program file (program/program_file.h) at a multiple of 64 bytes, with the weights once
//
// Numbers are little-endian. As with program files: machine code, checked for damage, trusted otherwise.
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
  std::vector<std::string> inputs, outputs;  ///< of the fused node, in its order
};

/// A group's programs in one container.
std::string write_context(const ContextNames& names, const std::vector<std::shared_ptr<const Program>>& programs);

/// The program of a container for a device, made ready. `bytes` must start at a multiple of 64 and stay while `owner`
/// does. Throws Error: kInvalidModel for a damaged one, kUnsupported for one of other architectures or of another
/// version of Sardonyx, with what it holds.
std::shared_ptr<CompiledGroup> read_context(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                            const ProviderOptions& options,
                                            const std::shared_ptr<ProviderDevice>& device, ContextNames& names);

/// Whether a node is an EPContext node of this provider's; throws Error(kUnsupported) for one of another's.
bool is_context(const Ort& ort, const OrtNode* n);
/// What the node holds, ready to run. `graph`: the one the node is in, for the model's folder.
std::shared_ptr<CompiledGroup> load_context(const Ort& ort, const OrtNode* n, const OrtGraph* graph,
                                            const ProviderOptions& options,
                                            const std::shared_ptr<ProviderDevice>& device, ContextNames& names);
/// The part of the original model that the node stands for, to be compiled again. `options.context_rebuild`: the file,
/// or "1" for the one that the node names, in the folder of the EPContext model. Throws Error where there is none or it
/// does not fit; see original_model.h.
GroupModel original_of(const Ort& ort, const OrtNode* n, const OrtGraph* graph, const ProviderOptions& options);

/// What ONNX Runtime records of a compiled model, and asks about later: version, format and targets of the programs.
std::string compatibility_info(const std::vector<std::string>& targets);
/// Whether a model of this record runs on one of the devices.
OrtCompiledModelCompatibility compatibility(std::string_view info,
                                            const std::vector<std::shared_ptr<ProviderDevice>>& devices);

/// The EPContext node that stands for a fused node: the container inside, or in a file in the model's folder.
OrtNode* make_context_node(const Ort& ort, const OrtNode* fused, const OrtGraph* graph, const ContextNames& names,
                           const std::vector<std::shared_ptr<const Program>>& programs, const ProviderOptions& options);

}  // namespace sardonyx::ep
