// Options of compiling and loading: the fields, and below them the table that describes each. The command line, Python,
// ONNX Runtime's provider, the checks and docs/options.md take names, types, defaults and texts from this file. To add
// an option, add a field, its row, and the code that acts on it (CONTRIBUTING.md).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "sardonyx/memory_budget.h"

namespace sardonyx {

class Communicator;

/// The current stage of compilation: "reading", "importing", "compiling" (then with counts of translation units),
/// "ready".
struct Progress {
  std::string_view stage;
  std::size_t done = 0, total = 0;
};

/// How to compile and load. The rows of kOptions, below, say what each field means.
struct Options {
  std::string device = "host";
  std::string precision = "fp32";
  std::filesystem::path calibration_table;
  int threads = 0;
  std::filesystem::path cache_dir;
  std::map<std::string, std::int64_t> dims;
  std::string tuning = "off";
  std::filesystem::path tuning_database;
  std::string product_library;
  bool fuse = true;
  bool all_outputs = false;
  bool compile_ahead = false;
  bool unpacked_weights = false;
  bool graphs = true;
  std::uint64_t device_memory_limit = 0;
  std::filesystem::path custom_operators;

  // Objects; they are not in kOptions. Python has communicator and progress.
  /// Limit of the GPU memory that several models use together, in addition to device_memory_limit; null: none.
  std::shared_ptr<MemoryBudget> device_memory_budget;
  /// For models with collective operators (com.microsoft's AllReduce and AllGather): this process's membership in the
  /// group, on the same device. See sardonyx/communicator.h.
  std::shared_ptr<Communicator> communicator;
  /// Called while compiling, from one thread at a time.
  std::function<void(const Progress&)> progress;
};

/// The field that an option sets; its type is the option's.
using OptionField = std::variant<bool Options::*, int Options::*, std::uint64_t Options::*, std::string Options::*,
                                 std::filesystem::path Options::*, std::map<std::string, std::int64_t> Options::*>;

/// One option. Fields without a value are empty: the option has no such name, or the check does not apply.
struct OptionInfo {
  std::string_view name;  ///< the field's, and the Python keyword
  OptionField field;
  std::string_view help;                        ///< one sentence, without a full stop
  std::string_view details = {};                ///< further sentences, for documentation
  std::array<std::string_view, 5> values = {};  ///< allowed values of a string
  std::int64_t largest = 0;                     ///< largest value of a number; 0: that of its type
  /// Default as text, if the field's default value does not show it.
  std::string_view default_text = {};
  bool at_load = false;  ///< also applies when a compiled program is loaded

  std::string_view flag = {};         ///< on the command line: "-j,--threads"; of a bool, the flag that inverts it
  std::string_view placeholder = {};  ///< of its value: "N". "FILE" and "DIR" are paths
  std::string_view environment = {};  ///< variable that the command line reads if the flag is not given
  bool empty_means_none = false;      ///< an empty text is a value, not the default
  bool python_environment = false;    ///< Python reads the variable too

  std::string_view provider = {};                 ///< name as an option of ONNX Runtime's provider
  std::array<std::string_view, 2> migraphx = {};  ///< the MIGraphX provider's names for it
  std::array<std::string_view, 2> rocm = {};      ///< the ROCm provider's
};

// clang-format off
/// Every option, in the order of documentation.
inline constexpr OptionInfo kOptions[] = {
    {.name = "device", .field = &Options::device,
     .help = "where to run: host (this machine's CPU), hip, cuda:1; `sardonyx devices` lists them",
     .details = "For a compiled program for GPUs, host means the first GPU of the right kind.",
     .at_load = true, .flag = "--device", .placeholder = "NAME", .environment = "SARDONYX_DEVICE"},
    {.name = "precision", .field = &Options::precision,
     .help = "fp32: the model's own types; fp16 or bf16: weights and activations in 16 bits, accumulated in 32; int8 or fp8: GEMMs "
             "and convolutions in 8 bits, with a calibration table",
     .details = "With 16 bits, the statistics of softmax and normalisation and the model's inputs and outputs keep their types; the host "
                "computes in float32 even then. With 8 bits, nodes without a calibrated range stay in float32; fp8 is float8 "
                "e4m3, on GPUs with matrix instructions for it. docs/precision.md has more.",
     .values = {"fp32", "fp16", "bf16", "int8", "fp8"},
     .flag = "--precision", .placeholder = "TYPE", .provider = "precision"},
    {.name = "calibration_table", .field = &Options::calibration_table,
     .help = "ranges of the activations, for int8 and fp8; with fp16, tensors beyond its range stay in float32",
     .details = "`sardonyx quantize --to table`, ONNX Runtime's calibrators and TensorRT write such files (docs/precision.md). The provider looks for a relative name in the working directory, then in "
                "`cache_dir`.",
     .flag = "--calibration-table", .placeholder = "FILE",
     .provider = "calibration_table", .migraphx = {"migraphx_int8_calibration_table_name"}},
    {.name = "threads", .field = &Options::threads,
     .help = "threads to compile and run with",
     .details = "0, the default, means all CPUs of the affinity mask, but not more than the CPU quota of the control group, rounded up.",
     .largest = 4096, .default_text = "all cores", .at_load = true,
     .flag = "-j,--threads", .placeholder = "N", .environment = "SARDONYX_THREADS", .provider = "threads"},
    {.name = "cache_dir", .field = &Options::cache_dir,
     .help = "directory of the cache of compiled code; \"\" for none",
     .details = "The same model compiles quickly the next time. Code in it is executed, so a directory that others may write to is not "
                "used. The C++ interface has no cache unless a directory is given; user_cache_directory() is the default elsewhere.",
     .default_text = "$XDG_CACHE_HOME/sardonyx or ~/.cache/sardonyx", .at_load = true,
     .flag = "--cache-dir", .placeholder = "DIR", .environment = "SARDONYX_CACHE_DIR", .empty_means_none = true,
     .provider = "cache_dir", .migraphx = {"migraphx_model_cache_dir", "migraphx_cache_dir"}},
    {.name = "dims", .field = &Options::dims,
     .help = "fixes a symbolic dim of the inputs; the program is then for this size only: batch=1",
     .flag = "--fix", .placeholder = "NAME=N"},
    {.name = "tuning", .field = &Options::tuning,
     .help = "how GPU kernels of GEMMs, convolutions and attention are chosen: off (by the cost model, or from the database), first-use "
             "(the most promising candidates are timed when sizes first occur) or exhaustive (all candidates are timed)",
     .details = "Runs that time kernels take longer; the times are kept in the database. On the command line: `sardonyx tune`.",
     .values = {"off", "first-use", "exhaustive"}},
    {.name = "tuning_database", .field = &Options::tuning_database,
     .help = "file with the measured times of GPU kernels; tuning (`sardonyx tune`) writes it",
     .default_text = "none; with tuning, `tuning-2.sqlite` in the cache", .flag = "--tuning-database", .placeholder = "FILE"},
    {.name = "product_library", .field = &Options::product_library,
     .help = "the vendor's GEMM library (cuBLASLt, hipBLASLt), used where tuning found it to be the fastest; off: never used",
     .default_text = "what the loader finds", .at_load = true,
     .flag = "--product-library", .placeholder = "FILE", .environment = "SARDONYX_PRODUCT_LIBRARY", .python_environment = true},
    {.name = "fuse", .field = &Options::fuse,
     .help = "without fusion every value has its own kernel, which helps to find the cause of a wrong result",
     .flag = "--no-fuse", .provider = "fuse"},
    {.name = "all_outputs", .field = &Options::all_outputs,
     .help = "makes every named intermediate value an output"},
    {.name = "compile_ahead", .field = &Options::compile_ahead,
     .help = "compiles all kernels before the model is ready, also those that only some sizes or branches need; otherwise these are "
             "compiled in the background, or when a run first needs one",
     .details = "A run waits for the kernels that it needs and for no others. Which kernels run does not depend on it. Saving a program "
                "waits for all kernels, and `wait()` of a model does.",
     .flag = "--compile-ahead", .provider = "compile_ahead"},
    {.name = "unpacked_weights", .field = &Options::unpacked_weights,
     .help = "on a GPU, keeps constant weights of 4 and 8 bits in 16 bits too, for GEMMs of many rows, which otherwise unpack them in "
             "each run",
     .details = "They are unpacked when the model is loaded, and take four times (8 bits: twice) the memory of the packed ones, which few "
                "rows still read. Programs of one process share them.",
     .flag = "--unpacked-weights", .provider = "unpacked_weights"},
    {.name = "graphs", .field = &Options::graphs,
     .help = "on a GPU, replays runs whose sizes have occurred before as one HIP or CUDA graph",
     .at_load = true, .provider = "hip_graph_enable", .migraphx = {"migraphx_hip_graph_enable"}, .rocm = {"enable_hip_graph"}},
    {.name = "device_memory_limit", .field = &Options::device_memory_limit,
     .help = "bytes of GPU memory that the model may use; 0: no limit", .at_load = true},
    {.name = "custom_operators", .field = &Options::custom_operators,
     .help = "TOML file of custom operators: kernels in CUDA or HIP, or expressions",
     .details = "Their code runs with the permissions of the program. docs/custom-operators.md describes the file.",
     .flag = "--custom", .placeholder = "FILE", .provider = "custom_operators"},
};
// clang-format on

}  // namespace sardonyx
