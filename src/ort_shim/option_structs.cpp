#include "ort_shim/option_structs.h"

#include <charconv>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace sardonyx::ort_shim {
namespace {

// Fields of OrtROCMProviderOptions by the names of the provider's options.
template <typename F>
void each_field(OrtROCMProviderOptions& o, F&& f) {
  f("device_id", o.device_id);
  f("miopen_conv_exhaustive_search", o.miopen_conv_exhaustive_search);
  f("gpu_mem_limit", o.gpu_mem_limit);
  f("arena_extend_strategy", o.arena_extend_strategy);
  f("do_copy_in_default_stream", o.do_copy_in_default_stream);
  f("has_user_compute_stream", o.has_user_compute_stream);
  f("user_compute_stream", o.user_compute_stream);
  f("enable_hip_graph", o.enable_hip_graph);
  f("tunable_op_enable", o.tunable_op_enable);
  f("tunable_op_tuning_enable", o.tunable_op_tuning_enable);
  f("tunable_op_max_tuning_duration_ms", o.tunable_op_max_tuning_duration_ms);
}

template <typename T>
std::string text_of(T field) {
  if constexpr (std::is_pointer_v<T>)
    return std::to_string(reinterpret_cast<std::uintptr_t>(field));
  else
    return std::to_string(field);
}

}  // namespace

NamesAndValues names_and_values(const OrtMIGraphXProviderOptions& o) {
  NamesAndValues out = {
      {"device_id", std::to_string(o.device_id)},
      {"migraphx_fp16_enable", o.migraphx_fp16_enable ? "1" : "0"},
      {"migraphx_fp8_enable", o.migraphx_fp8_enable ? "1" : "0"},
      {"migraphx_int8_enable", o.migraphx_int8_enable ? "1" : "0"},
      {"migraphx_int8_use_native_calibration_table", o.migraphx_use_native_calibration_table ? "1" : "0"},
      {"migraphx_save_compiled_model", o.migraphx_save_compiled_model ? "1" : "0"},
      {"migraphx_load_compiled_model", o.migraphx_load_compiled_model ? "1" : "0"},
      {"migraphx_exhaustive_tune", o.migraphx_exhaustive_tune ? "1" : "0"},
      {"migraphx_arena_extend_strategy", std::to_string(o.migraphx_arena_extend_strategy)},
  };
  const auto text = [&out](const char* name, const char* value) {
    if (value && *value) out.emplace_back(name, value);
  };
  text("migraphx_int8_calibration_table_name", o.migraphx_int8_calibration_table_name);
  text("migraphx_save_compiled_path", o.migraphx_save_model_path);
  text("migraphx_load_compiled_path", o.migraphx_load_model_path);
  // Programs that fill the struct with zeros mean no limit too.
  if (o.migraphx_mem_limit && o.migraphx_mem_limit != std::numeric_limits<std::size_t>::max())
    out.emplace_back("migraphx_mem_limit", std::to_string(o.migraphx_mem_limit));
  return out;
}

NamesAndValues names_and_values(const OrtROCMProviderOptions& o) {
  NamesAndValues out;
  each_field(const_cast<OrtROCMProviderOptions&>(o),
             [&](const char* name, const auto& field) { out.emplace_back(name, text_of(field)); });
  std::erase_if(out, [](const auto& pair) {
    return (pair.first == "user_compute_stream" || pair.first == "gpu_mem_limit") && pair.second == "0";
  });
  return out;
}

bool set_field(OrtROCMProviderOptions& o, const std::string& name, const std::string& value) {
  const std::string text = value == "True" || value == "true"                               ? "1"
                           : value == "False" || value == "false"                           ? "0"
                           : name == "arena_extend_strategy" && value == "kNextPowerOfTwo"  ? "0"
                           : name == "arena_extend_strategy" && value == "kSameAsRequested" ? "1"
                                                                                            : value;
  std::uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  bool found = false;
  each_field(o, [&](std::string_view field_name, auto& field) {
    if (field_name != name || error != std::errc() || end != text.data() + text.size()) return;
    using T = std::remove_reference_t<decltype(field)>;
    if constexpr (std::is_pointer_v<T>)
      field = reinterpret_cast<T>(static_cast<std::uintptr_t>(n));
    else
      field = static_cast<T>(n);
    found = true;
  });
  return found;
}

}  // namespace sardonyx::ort_shim
