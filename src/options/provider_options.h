// The options of ONNX Runtime's provider: those of the compiler that have a provider name (sardonyx/compile_options.h),
// its own, and the names that AMD's ROCm, MIGraphX and AMDGPU providers have for them. docs/options.md lists them.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sardonyx/compile_options.h"

namespace sardonyx {

/// Addresses of the application's functions that allocate device memory; 0: none.
struct ExternalMemory {
  std::uintptr_t allocate = 0, free = 0, empty_cache = 0;
};

/// What a session asks for.
struct ProviderOptions {
  Options compile;                  ///< but the device, tuning and memory budget, which the session decides
  std::string device;               ///< "": the session's device; "host", "hip:1", "sim:gfx1100"
  int device_id = -1;               ///< -1: the session's device
  std::uint64_t gpu_mem_limit = 0;  ///< bytes; 0: no limit
  bool same_as_requested = false;   ///< the arena allocates chunks of the size asked for, instead of powers of two
  ExternalMemory external;
  std::uintptr_t user_compute_stream = 0;
  bool exhaustive_tune = false;           ///< time candidates when sizes are first seen
  bool use_tuned = false;                 ///< use measured times, without measuring
  std::filesystem::path calibration_dir;  ///< where a relative calibration table is looked for first; empty: nowhere
  /// Files of the session's compiled groups (ep/group_file.h); empty: none.
  std::filesystem::path save_path, load_path;
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

/// An option of the provider alone.
struct ProviderOption {
  std::string_view name;
  std::string_view default_text;  ///< for documentation
  std::string_view help;          ///< for documentation
  /// `who` begins error messages: "option device_id". Null: it requests the precision of its name.
  void (*set)(ProviderOptions&, std::string_view who, const std::string& value) = nullptr;
  std::array<std::string_view, 3> migraphx = {};  ///< the MIGraphX provider's names for it
  std::array<std::string_view, 2> rocm = {};      ///< the ROCm provider's
};
std::span<const ProviderOption> provider_options();

/// An option of another provider that is accepted and has no effect.
struct IgnoredOption {
  std::string_view provider;  ///< whose: "MIGraphX"
  std::string_view name;
  std::string_view why;  ///< it is not needed
};
std::span<const IgnoredOption> ignored_provider_options();

/// Remarks for the log.
struct ProviderRemarks {
  std::vector<std::string> notes;     ///< options and variables without effect, with the reason
  std::vector<std::string> warnings;  ///< variables that are unknown
};

/// Reads the session's configuration: keys "ep.amdgpuexecutionprovider.NAME", and ONNX Runtime's keys for EPContext.
/// `variables`: migraphx_variables(); an option that is given wins over a variable. `cache_dir`: the default of that
/// option. Throws Error(kInvalidArgument) for an unknown option (naming the nearest) and for values that do not fit.
ProviderOptions read_provider_options(const std::map<std::string, std::string>& config,
                                      const std::map<std::string, std::string>& variables,
                                      const std::filesystem::path& cache_dir, ProviderRemarks& remarks);

}  // namespace sardonyx
