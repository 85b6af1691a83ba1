#include "options/provider_variables.h"

#include <algorithm>

#include "options/parse.h"

namespace sardonyx {
namespace {

constexpr std::string_view kPasses = "it controls MIGraphX's own passes, which are not used";
constexpr std::string_view kKernels = "it controls MIGraphX's own kernels and libraries, which are not used";
constexpr std::string_view kTraces =
    "it traces MIGraphX; use the options dump_dir (kernels of each group) and profile (their times)";
constexpr std::string_view kPadding =
    "tensors are never padded: a program serves all sizes, so there is nothing to pad or to recompile";
constexpr std::string_view kSource = "nothing depends on what kind of network a model is";

// clang-format off
constexpr ProviderVariable kVariables[] = {
    // The provider in ONNX Runtime.
    {"ORT_MIGRAPHX_FP16_ENABLE", "fp16", ""},
    {"ORT_MIGRAPHX_BF16_ENABLE", "bf16", ""},
    {"ORT_MIGRAPHX_FP8_ENABLE", "fp8", ""},
    {"ORT_MIGRAPHX_INT8_ENABLE", "int8", ""},
    {"ORT_MIGRAPHX_INT8_CALIBRATION_TABLE_NAME", "calibration_table", ""},
    {"ORT_MIGRAPHX_CACHE_PATH", "calibration_dir", ""},
    {"ORT_MIGRAPHX_MODEL_CACHE_PATH", "cache_dir", ""},
    {"ORT_MIGRAPHX_SAVE_COMPILED_MODEL", "save_compiled_model", ""},
    {"ORT_MIGRAPHX_SAVE_COMPILED_PATH", "save_compiled_path", ""},
    {"ORT_MIGRAPHX_SAVE_COMPILE_PATH", "save_compiled_path", ""},
    {"ORT_MIGRAPHX_LOAD_COMPILED_MODEL", "load_compiled_model", ""},
    {"ORT_MIGRAPHX_LOAD_COMPILED_PATH", "load_compiled_path", ""},
    {"ORT_MIGRAPHX_LOAD_COMPILE_PATH", "load_compiled_path", ""},
    {"ORT_MIGRAPHX_EXHAUSTIVE_TUNE", "exhaustive_tune", ""},
    {"ORT_MIGRAPHX_MAX_DYNAMIC_BATCH", "max_dynamic_batch", ""},
    {"ORT_MIGRAPHX_COMPILE_BATCHES", "compile_batches", ""},
    {"ORT_MIGRAPHX_HIP_GRAPH_ENABLE", "hip_graph_enable", ""},
    {"ORT_MIGRAPHX_DUMP_MODEL_OPS", "dump_model_ops", ""},
    {"ORT_MIGRAPHX_FAST_MATH_ENABLE", "", "there are no less accurate functions to choose"},
    {"ORT_MIGRAPHX_INT8_USE_NATIVE_CALIBRATION_TABLE", "", "the format of a calibration table is recognised from its content"},
    {"ORT_MIGRAPHX_COALESCE_IO", "", "inputs and outputs are used in place, so there are no copies to coalesce"},
    {"ORT_MIGRAPHX_MAX_COMPILED_MODELS", "", "one program serves all shapes, so there are no others to keep"},
    {"ORT_MIGRAPHX_COMPILE_TARGET", "", "the session's device decides; SARDONYX_DEVICE=host runs on the CPU"},
    // AMD's plugin.
    {"ORT_MIGRAPHX_CACHE_DIR", "cache_dir", ""},
    {"ORT_MIGRAPHX_DISABLE_COMPILED_MODEL_CACHING", "disable_caching", ""},
    {"ORT_MIGRAPHX_FORCE_RECOMPILE", "force_recompile", ""},
    {"ORT_MIGRAPHX_DUMP_SUBGRAPHS", "dump_model_ops", ""},
    {"ORT_MIGRAPHX_DUMP_EP_CONTEXT_MODEL", "", "ONNX Runtime's session option ep.context_enable writes EPContext models"},
    {"ORT_MIGRAPHX_COMPUTE_MODE", "", "programs are always compiled ahead of the first run"},
    {"ORT_MIGRAPHX_PRECOMPILE_AT_LOAD", "", "programs are always compiled when the session is created"},
    {"ORT_MIGRAPHX_PROBLEM_CACHE", "", "measured times are stored in cache_dir, in another format"},
    {"ORT_MIGRAPHX_LEGACY_COMPUTE_SYNC", "", "copies and kernels are ordered by the stream, without waiting for it"},
    {"ORT_MIGRAPHX_MLSS_USE_SPECIFIC_OPS", "", "one compiler generates all operators, so there is no library to choose for some"},
    {"ORT_MIGRAPHX_CPU_CONTROL_FLOW", "", "If, Loop and Scan are part of the program, whose control flow runs on the CPU anyway"},
    {"ORT_MIGRAPHX_MODEL_ARCH", "", kSource},
    {"ORT_MIGRAPHX_STATIC_PAD_SEQ", "", kPadding},
    {"ORT_MIGRAPHX_STATIC_PAD_SEQ_LEN", "", kPadding},
    {"ORT_MIGRAPHX_STATIC_PAD_INPUTS", "", kPadding},
    {"ORT_MIGRAPHX_STATIC_PAD_OUTPUTS", "", kPadding},
    // MIGraphX.
    {"MIGRAPHX_DISABLE_POINTWISE_FUSION", "fuse", "", true},
    {"MIGRAPHX_GPU_COMPILE_PARALLEL", "threads", ""},
    {"MIGRAPHX_MLIR_TUNE_EXHAUSTIVE", "exhaustive_tune", ""},
    {"MIGRAPHX_8BITS_QUANTIZATION_PARAMS", "", kTraces},
    {"MIGRAPHX_BENCHMARKING_BUNDLE", "", kKernels},
    {"MIGRAPHX_BENCHMARKING_NRUNS", "", kKernels},
    {"MIGRAPHX_CK_DEBUG", "", kKernels},
    {"MIGRAPHX_COPY_LITERALS", "", "weights are copied to the device once"},
    {"MIGRAPHX_DEBUG_MEMORY_COLORING", "", kTraces},
    {"MIGRAPHX_DEBUG_SAVE_TEMP_DIR", "", kTraces},
    {"MIGRAPHX_DISABLE_DNNL_POST_OPS_WORKAROUND", "", kKernels},
    {"MIGRAPHX_DISABLE_FP16_INSTANCENORM_CONVERT", "", "the statistics of normalisation are always computed in float32"},
    {"MIGRAPHX_DISABLE_FP32_SOFTMAX", "", "softmax is always computed in float32"},
    {"MIGRAPHX_DISABLE_LAYERNORM_FUSION", "", kPasses},
    {"MIGRAPHX_DISABLE_MIOPEN_FUSION", "", kKernels},
    {"MIGRAPHX_DISABLE_MLIR", "", kKernels},
    {"MIGRAPHX_DISABLE_MULTI_OUTPUT_FUSION", "", kPasses},
    {"MIGRAPHX_DISABLE_PASSES", "", kPasses},
    {"MIGRAPHX_DISABLE_REDUCE_FUSION", "", kPasses},
    {"MIGRAPHX_DISABLE_SCHEDULE_PASS", "", kPasses},
    {"MIGRAPHX_ENABLE_CK", "", kKernels},
    {"MIGRAPHX_ENABLE_CK_WORKAROUNDS", "", kKernels},
    {"MIGRAPHX_ENABLE_EXTRA_MLIR", "", kKernels},
    {"MIGRAPHX_ENABLE_FULL_DYNAMIC", "", "programs are always for all sizes"},
    {"MIGRAPHX_ENABLE_GEMM_TUNING", "", kKernels},
    {"MIGRAPHX_ENABLE_HIP_GEMM_TUNING", "", kKernels},
    {"MIGRAPHX_ENABLE_LAYERNORM_FUSION", "", kPasses},
    {"MIGRAPHX_ENABLE_MIOPEN_POOLING", "", kKernels},
    {"MIGRAPHX_ENABLE_MLIR_GEG_FUSION", "", kKernels},
    {"MIGRAPHX_ENABLE_MLIR_INPUT_FUSION", "", kKernels},
    {"MIGRAPHX_ENABLE_MLIR_REDUCE_FUSION", "", kKernels},
    {"MIGRAPHX_ENABLE_NHWC", "", "the order of dims in memory is chosen for each tensor"},
    {"MIGRAPHX_ENABLE_NULL_STREAM", "", "the option user_compute_stream gives the stream"},
    {"MIGRAPHX_ENABLE_REWRITE_DOT", "", kPasses},
    {"MIGRAPHX_FLASH_DECODING_ENABLED", "", kKernels},
    {"MIGRAPHX_FLASH_DECODING_MAX_SPLITS", "", kKernels},
    {"MIGRAPHX_FLASH_DECODING_MIN_CHUNK_SIZE", "", kKernels},
    {"MIGRAPHX_FLASH_DECODING_NUM_SPLITS", "", kKernels},
    {"MIGRAPHX_FLASH_DECODING_THRESHOLD", "", kKernels},
    {"MIGRAPHX_GPU_DEBUG", "", kTraces},
    {"MIGRAPHX_GPU_DEBUG_SYM", "", kTraces},
    {"MIGRAPHX_GPU_DUMP_ASM", "", kTraces},
    {"MIGRAPHX_GPU_DUMP_BENCHMARK_MXR", "", kTraces},
    {"MIGRAPHX_GPU_DUMP_SRC", "", kTraces},
    {"MIGRAPHX_GPU_HIP_FLAGS", "", kKernels},
    {"MIGRAPHX_GPU_OPTIMIZE", "", kKernels},
    {"MIGRAPHX_LOG_CK_GEMM", "", kTraces},
    {"MIGRAPHX_LOG_LEVEL", "", "ONNX Runtime's log has the messages; its session options set the level"},
    {"MIGRAPHX_MLIR_DUMP", "", kTraces},
    {"MIGRAPHX_MLIR_DUMP_TO_MXR", "", kTraces},
    {"MIGRAPHX_MLIR_ENABLE_SPLITK", "", kKernels},
    {"MIGRAPHX_MLIR_TUNE_LIMIT", "", kKernels},
    {"MIGRAPHX_MLIR_TUNING_CFG", "", kKernels},
    {"MIGRAPHX_MLIR_TUNING_DB", "", kKernels},
    {"MIGRAPHX_MLIR_USE_SPECIFIC_OPS", "", kKernels},
    {"MIGRAPHX_NSTREAMS", "", "a program's kernels run on one stream"},
    {"MIGRAPHX_PROBLEM_CACHE", "", "measured times are stored in cache_dir, in another format"},
    {"MIGRAPHX_REWRITE_LRN", "", kPasses},
    {"MIGRAPHX_SET_GEMM_PROVIDER", "", kKernels},
    {"MIGRAPHX_SKIP_BENCHMARKING", "", kKernels},
    {"MIGRAPHX_SPLIT_REDUCE_SIZE", "", kPasses},
    {"MIGRAPHX_TIME_MATCHERS", "", kTraces},
    {"MIGRAPHX_TIME_PASSES", "", kTraces},
    {"MIGRAPHX_TRACE_BENCHMARKING", "", kTraces},
    {"MIGRAPHX_TRACE_CMD_EXECUTE", "", kTraces},
    {"MIGRAPHX_TRACE_COMPILE", "", kTraces},
    {"MIGRAPHX_TRACE_ELIMINATE_CONTIGUOUS", "", kTraces},
    {"MIGRAPHX_TRACE_EVAL", "", kTraces},
    {"MIGRAPHX_TRACE_FINALIZE", "", kTraces},
    {"MIGRAPHX_TRACE_HIPRTC", "", kTraces},
    {"MIGRAPHX_TRACE_MATCHES", "", kTraces},
    {"MIGRAPHX_TRACE_MATCHES_FOR", "", kTraces},
    {"MIGRAPHX_TRACE_MLIR", "", kTraces},
    {"MIGRAPHX_TRACE_NARY", "", kTraces},
    {"MIGRAPHX_TRACE_ONNX_PARSER", "", kTraces},
    {"MIGRAPHX_TRACE_PASSES", "", kTraces},
    {"MIGRAPHX_TRACE_PROPAGATE_CONSTANT", "", kTraces},
    {"MIGRAPHX_TRACE_QUANTIZATION", "", kTraces},
    {"MIGRAPHX_TRACE_SCHEDULE", "", kTraces},
    {"MIGRAPHX_TUNE_CK", "", kKernels},
    {"MIGRAPHX_USE_FAST_SOFTMAX", "", kKernels},
    {"MIGRAPHX_VALIDATE_MATCHES", "", kTraces},
    {"MIGRAPHX_VERIFY_DUMP_DIFF", "", kTraces},
    {"MIGRAPHX_VERIFY_ENABLE_ALLCLOSE", "", kTraces},
};
// clang-format on

std::string_view unquoted(std::string_view text) {
  const auto is_quote = [](char c) { return c == '"' || c == '\''; };
  while (!text.empty() && is_quote(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_quote(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

std::span<const ProviderVariable> provider_variables() { return kVariables; }

std::map<std::string, std::string> migraphx_variables(const char* const* environment) {
  std::map<std::string, std::string> out;
  for (; environment && *environment; ++environment) {
    const std::string_view entry = *environment;
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = entry.substr(0, equals), value = unquoted(entry.substr(equals + 1));
    if ((name.starts_with("ORT_MIGRAPHX_") || name.starts_with("MIGRAPHX_")) && !value.empty())
      out.emplace(name, value);
  }
  return out;
}

std::vector<VariableOption> options_of_variables(const std::map<std::string, std::string>& variables,
                                                 std::vector<std::string>& notes, std::vector<std::string>& warnings) {
  std::vector<VariableOption> out;
  for (const auto& [name, value] : variables) {
    const auto row = std::find_if(std::begin(kVariables), std::end(kVariables),
                                  [&](const ProviderVariable& v) { return v.name == name; });
    if (row == std::end(kVariables)) {
      std::vector<std::string_view> names;
      for (const ProviderVariable& v : kVariables) names.push_back(v.name);
      warnings.push_back(fmt::format(
          "environment variable {} is unknown and has no effect; did you mean {}? docs/options.md lists all", name,
          nearest_name(name, names)));
      continue;
    }
    if (row->option.empty()) {
      notes.push_back(fmt::format("environment variable {} is accepted, and not needed: {}", name, row->why));
      continue;
    }
    std::string text = value;
    if (row->inverted) text = parse_bool("environment variable " + name, value) ? "0" : "1";
    out.push_back({name, std::string(row->option), std::move(text)});
  }
  return out;
}

}  // namespace sardonyx
