// The provider's options: its own, and all that users of AMD's ROCm, MIGraphX and AMDGPU providers have in their
// programs. Read once, when a session is made; docs/provider-migration.md says what each does.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ep/memory.h"

namespace sardonyx::ep {

struct ProviderOptions {
  std::string device;              ///< "": the session's device; "host", "hip:1", "sim:gfx1100"
  int device_id = -1;              ///< -1: the session's device
  std::string precision = "fp32";  ///< "fp32" (the model's own types), "fp16", "bf16", "int8", "fp8"
  std::filesystem::path calibration_table;
  int threads = 0;
  bool fuse = true;
  ArenaOptions arena;
  ExternalMemory external;
  std::uintptr_t user_compute_stream = 0;
  bool exhaustive_tune = false;
  bool hip_graphs = true;
  std::filesystem::path cache_dir;  ///< empty: no cache
  bool force_recompile = false;
  std::vector<std::int64_t> warm_batches;  ///< compiled and run once when the session is made
  std::filesystem::path dump_dir;          ///< where groups and what became of them are written; empty: nowhere
  std::filesystem::path profile_file;      ///< empty: none beside ONNX Runtime's own
  // EPContext models
  bool context_enable = false, context_embed = false;
  std::filesystem::path context_file;
  std::string context_prefix;
  std::string context_rebuild;               ///< "": refuse what can't be used; "1", or the original model's path
  std::vector<std::string> context_targets;  ///< "gfx942", ...; empty: the session's device
};

/// One option that users may give.
struct OptionInfo {
  std::string_view name;
  std::string_view canonical;  ///< the option that it is another name of; its own name if none
  /// Why it has no effect of its own here; empty: it has.
  std::string_view accepted;
};
const std::vector<OptionInfo>& known_options();

/// Reads the session's configuration: keys "ep.amdgpuexecutionprovider.NAME", and ONNX Runtime's own for EPContext.
/// `notes`: what the log should say once about accepted options. Throws Error(kInvalidArgument) for an unknown option
/// (naming the nearest) and for values that do not fit.
ProviderOptions read_options(const std::map<std::string, std::string>& config, std::vector<std::string>& notes);

}  // namespace sardonyx::ep
