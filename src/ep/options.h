// The provider's options: its own, and those of AMD's ROCm, MIGraphX and AMDGPU providers. They are read once, when a
// session is created; docs/provider-migration.md describes each.
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
  std::vector<std::int64_t> warm_batches;  ///< run once when the session is created
  std::filesystem::path dump_dir;          ///< directory for descriptions of compiled groups; empty: none
  std::filesystem::path profile_file;      ///< separate profile; empty: none
  // EPContext models
  bool context_enable = false, context_embed = false;
  std::filesystem::path context_file;
  std::string context_prefix;
  std::string context_rebuild;  ///< "": refuse unusable programs; "1", or the original model's path: recompile
  std::vector<std::string> context_targets;  ///< "gfx942", ...; empty: the session's device
};

/// One option that users may give.
struct OptionInfo {
  std::string_view name;
  std::string_view canonical;  ///< the option that it is an alias of; else its own name
  /// Why the option has no effect; empty if it has one.
  std::string_view accepted;
};
const std::vector<OptionInfo>& known_options();

/// Reads the session's configuration: keys "ep.amdgpuexecutionprovider.NAME", and ONNX Runtime's keys for EPContext.
/// `notes` receives remarks for the log about options without effect. Throws Error(kInvalidArgument) for an unknown
/// option (naming the nearest) and for values that do not fit.
ProviderOptions read_options(const std::map<std::string, std::string>& config, std::vector<std::string>& notes);

}  // namespace sardonyx::ep
