// The C interface's options of parsing, compiling, files and quantisation.
#include "migraphx/guard.h"

using namespace sardonyx;
using namespace sardonyx::mgx;

SARDONYX_MIGRAPHX_OBJECT(onnx_options)
SARDONYX_MIGRAPHX_OBJECT(file_options)
SARDONYX_MIGRAPHX_OBJECT(compile_options)
SARDONYX_MIGRAPHX_OBJECT(quantize_op_names)
SARDONYX_MIGRAPHX_OBJECT(quantize_int8_options)
SARDONYX_MIGRAPHX_OBJECT(quantize_fp8_options)

SARDONYX_MIGRAPHX migraphx_status migraphx_onnx_options_create(migraphx_onnx_options** onnx_options) {
  return guarded(__func__, [&] { give(onnx_options, "onnx_options", migraphx_onnx_options{}); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_onnx_options_set_input_parameter_shape(migraphx_onnx_options* onnx_options,
                                                                                  const char* name, std::size_t* dims,
                                                                                  std::size_t dims_size) {
  return guarded(__func__, [&] {
    given_array(dims, dims_size, "dims");
    given(onnx_options, "onnx_options").lengths[&given(name, "name")].assign(dims, dims + dims_size);
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_onnx_options_set_dyn_input_parameter_shape(
    migraphx_onnx_options* onnx_options, const char* name, migraphx_dynamic_dimensions* dims) {
  return guarded(__func__,
                 [&] { given(onnx_options, "onnx_options").dynamic[&given(name, "name")] = given(dims, "dims").dims; });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_onnx_options_set_default_dim_value(migraphx_onnx_options* onnx_options,
                                                                              std::size_t value) {
  return guarded(__func__, [&] { given(onnx_options, "onnx_options").default_dim = {value, value, {}}; });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_onnx_options_set_default_dyn_dim_value(
    migraphx_onnx_options* onnx_options, const migraphx_dynamic_dimension* dd) {
  return guarded(__func__, [&] { given(onnx_options, "onnx_options").default_dim = given(dd, "dd"); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_onnx_options_set_default_loop_iterations(migraphx_onnx_options* onnx_options,
                                                                                    std::int64_t value) {
  return guarded(__func__, [&] { given(onnx_options, "onnx_options").loop_iterations = value; });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_onnx_options_set_limit_loop_iterations(migraphx_onnx_options* onnx_options,
                                                                                  std::int64_t value) {
  return guarded(__func__, [&] { given(onnx_options, "onnx_options").loop_limit = value; });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_onnx_options_set_external_data_path(migraphx_onnx_options* onnx_options,
                                                                               const char* external_data_path) {
  return guarded(__func__, [&] {
    given(onnx_options, "onnx_options").external_data_path = &given(external_data_path, "external_data_path");
  });
}

/// Programs keep the names of the model's nodes with and without it.
SARDONYX_MIGRAPHX migraphx_status migraphx_onnx_options_set_use_debug_symbols(migraphx_onnx_options* onnx_options,
                                                                              bool value) {
  return guarded(__func__, [&] {
    given(onnx_options, "onnx_options");
    if (value) note_no_effect("migraphx_onnx_options_set_use_debug_symbols", "the names of nodes are always kept");
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_file_options_create(migraphx_file_options** file_options) {
  return guarded(__func__, [&] { give(file_options, "file_options", migraphx_file_options{}); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_file_options_set_file_format(migraphx_file_options* file_options,
                                                                        const char* format) {
  return guarded(__func__, [&] { given(file_options, "file_options").format = &given(format, "format"); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_compile_options_create(migraphx_compile_options** compile_options) {
  return guarded(__func__, [&] { give(compile_options, "compile_options", migraphx_compile_options{}); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_compile_options_set_offload_copy(migraphx_compile_options* compile_options,
                                                                            bool value) {
  return guarded(__func__, [&] { given(compile_options, "compile_options").offload_copy = value; });
}

/// No effect: arithmetic is as accurate without it and not slower (docs/migraphx.md).
SARDONYX_MIGRAPHX migraphx_status migraphx_compile_options_set_fast_math(migraphx_compile_options* compile_options,
                                                                         bool value) {
  return guarded(__func__, [&] {
    given(compile_options, "compile_options").fast_math = value;
    if (value)
      note_no_effect("migraphx_compile_options_set_fast_math", "there are no less accurate functions to choose");
  });
}

SARDONYX_MIGRAPHX migraphx_status
migraphx_compile_options_set_exhaustive_tune_flag(migraphx_compile_options* compile_options, bool value) {
  return guarded(__func__, [&] { given(compile_options, "compile_options").exhaustive_tune = value; });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_quantize_op_names_create(migraphx_quantize_op_names** quantize_op_names) {
  return guarded(__func__, [&] { give(quantize_op_names, "quantize_op_names", migraphx_quantize_op_names{}); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_quantize_op_names_add(migraphx_quantize_op_names* quantize_op_names,
                                                                 const char* name) {
  return guarded(__func__,
                 [&] { given(quantize_op_names, "quantize_op_names").names.emplace_back(&given(name, "name")); });
}

SARDONYX_MIGRAPHX migraphx_status
migraphx_quantize_int8_options_create(migraphx_quantize_int8_options** quantize_int8_options) {
  return guarded(__func__,
                 [&] { give(quantize_int8_options, "quantize_int8_options", migraphx_quantize_int8_options{}); });
}

SARDONYX_MIGRAPHX migraphx_status
migraphx_quantize_int8_options_add_op_name(migraphx_quantize_int8_options* quantize_int8_options, const char* name) {
  return guarded(__func__,
                 [&] { given(quantize_int8_options, "quantize_int8_options").op_names.emplace(&given(name, "name")); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_quantize_int8_options_add_calibration_data(
    migraphx_quantize_int8_options* quantize_int8_options, migraphx_program_parameters* data) {
  return guarded(__func__, [&] {
    given(quantize_int8_options, "quantize_int8_options").calibration.push_back(given(data, "data"));
  });
}

SARDONYX_MIGRAPHX migraphx_status
migraphx_quantize_fp8_options_create(migraphx_quantize_fp8_options** quantize_fp8_options) {
  return guarded(__func__,
                 [&] { give(quantize_fp8_options, "quantize_fp8_options", migraphx_quantize_fp8_options{}); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_quantize_fp8_options_add_calibration_data(
    migraphx_quantize_fp8_options* quantize_fp8_options, migraphx_program_parameters* data) {
  return guarded(__func__, [&] {
    given(quantize_fp8_options, "quantize_fp8_options").calibration.push_back(given(data, "data"));
  });
}
