// The C interface's programs.
#include <algorithm>
#include <cstdio>

#include "migraphx/guard.h"
#include "migraphx/program.h"
#include "migraphx/shape.h"

using namespace sardonyx;
using namespace sardonyx::mgx;

SARDONYX_MIGRAPHX_OBJECT(program)

SARDONYX_MIGRAPHX migraphx_status migraphx_program_create(migraphx_program** program) {
  return guarded(__func__, [&] { give(program, "program", migraphx_program{}); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_parse_onnx(migraphx_program** out, const char* name,
                                                      migraphx_onnx_options* options) {
  return guarded(__func__, [&] {
    const std::filesystem::path path = &given(name, "name");
    give(out, "out", migraphx_program{MigraphxProgram::parse(path, given(options, "options"))});
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_parse_onnx_buffer(migraphx_program** out, const void* data, std::size_t size,
                                                             migraphx_onnx_options* options) {
  return guarded(__func__, [&] {
    const auto* bytes = given_array(static_cast<const std::byte*>(data), size, "data");
    const std::string& folder = given(options, "options").external_data_path;
    give(out, "out", migraphx_program{MigraphxProgram::parse(std::span(bytes, size), *options, folder)});
  });
}

namespace {

[[noreturn]] void refuse_tensorflow() {
  fail(ErrorKind::kUnsupported, "TensorFlow models can't be read; convert the model to ONNX (tf2onnx)");
}

}  // namespace

SARDONYX_MIGRAPHX migraphx_status migraphx_parse_tf(migraphx_program**, const char*, migraphx_tf_options*) {
  return guarded(__func__, refuse_tensorflow);
}

SARDONYX_MIGRAPHX migraphx_status migraphx_parse_tf_buffer(migraphx_program**, const void*, std::size_t,
                                                           migraphx_tf_options*) {
  return guarded(__func__, refuse_tensorflow);
}

SARDONYX_MIGRAPHX migraphx_status migraphx_load(migraphx_program** out, const char* name,
                                                migraphx_file_options* options) {
  return guarded(__func__, [&] {
    const std::filesystem::path path = &given(name, "name");
    give(out, "out", migraphx_program{MigraphxProgram::load(path, given(options, "options").format)});
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_save(migraphx_program* p, const char* name, migraphx_file_options* options) {
  return guarded(__func__,
                 [&] { given(p, "p").settled().save(&given(name, "name"), given(options, "options").format); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_program_compile(migraphx_program* program, migraphx_target* target,
                                                           migraphx_compile_options* options) {
  return guarded(__func__, [&] {
    given(program, "program").settled().compile(given(target, "target"), given(options, "options"));
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_program_get_parameter_shapes(migraphx_program_parameter_shapes** out,
                                                                        migraphx_program* program) {
  return guarded(__func__, [&] {
    migraphx_program_parameter_shapes shapes;
    for (Parameter& p : given(program, "program").settled().parameters()) shapes.shapes[p.name] = std::move(p.shape);
    give(out, "out", std::move(shapes));
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_program_get_output_shapes(migraphx_shapes** out, migraphx_program* program) {
  return guarded(__func__, [&] { give(out, "out", migraphx_shapes{given(program, "program").settled().outputs()}); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_program_print(const migraphx_program* program) {
  return guarded(__func__, [&] {
    std::fputs((given(program, "program").settled().text() + "\n").c_str(), stdout);
    std::fflush(stdout);
  });
}

/// Nothing to do: nodes are always in an order in which they can run.
SARDONYX_MIGRAPHX migraphx_status migraphx_program_sort(migraphx_program* program) {
  return guarded(__func__, [&] { given(program, "program"); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_program_equal(bool* out, const migraphx_program* program,
                                                         const migraphx_program* x) {
  return guarded(__func__, [&] { given(out, "out") = given(program, "program").settled() == given(x, "x").settled(); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_program_run(migraphx_arguments** out, migraphx_program* program,
                                                       migraphx_program_parameters* params) {
  return guarded(__func__, [&] {
    const MigraphxProgram& p = given(program, "program").program;
    give(out, "out", migraphx_arguments{p.run(given(params, "params").arguments)});
  });
}

/// `name`: the stream's type, which is HIP's.
SARDONYX_MIGRAPHX migraphx_status migraphx_program_run_async(migraphx_arguments** out, migraphx_program* program,
                                                             migraphx_program_parameters* params, void* s,
                                                             const char* name) {
  return guarded(__func__, [&] {
    given(name, "name");
    const MigraphxProgram& p = given(program, "program").program;
    give(out, "out", migraphx_arguments{p.run_on_stream(given(params, "params").arguments, s)});
  });
}

namespace {

void quantize(migraphx_program* prog, const char* precision) { given(prog, "prog").settled().quantize(precision); }

/// No names, or "all": every operator.
void quantize(migraphx_program* prog, const migraphx_quantize_op_names* name, const char* precision) {
  const std::vector<std::string>& names = given(name, "name").names;
  if (names.empty() || std::find(names.begin(), names.end(), "all") != names.end()) return quantize(prog, precision);
  given(prog, "prog").settled().quantize_operators(precision, names);
}

}  // namespace

SARDONYX_MIGRAPHX migraphx_status migraphx_quantize_fp16(migraphx_program* prog) {
  return guarded(__func__, [&] { quantize(prog, "fp16"); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_quantize_fp16_with_op_names(migraphx_program* prog,
                                                                       migraphx_quantize_op_names* name) {
  return guarded(__func__, [&] { quantize(prog, name, "fp16"); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_quantize_bf16(migraphx_program* prog) {
  return guarded(__func__, [&] { quantize(prog, "bf16"); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_quantize_bf16_with_op_names(migraphx_program* prog,
                                                                       migraphx_quantize_op_names* name) {
  return guarded(__func__, [&] { quantize(prog, name, "bf16"); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_quantize_int8(migraphx_program* prog, migraphx_target* target,
                                                         migraphx_quantize_int8_options* options) {
  return guarded(__func__, [&] {
    given(target, "target");
    // MIGraphX takes no names for both, and stores them in the options.
    std::set<std::string>& names = given(options, "options").op_names;
    if (names.empty()) names = {"convolution", "dot"};
    if (names != std::set<std::string>{"convolution", "dot"})
      fail(ErrorKind::kUnsupported, "int8 is for the operators convolution and dot together; name both, or none");
    given(prog, "prog").settled().calibrate("int8", options->calibration);
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_quantize_fp8(migraphx_program* prog, migraphx_target* target,
                                                        migraphx_quantize_fp8_options* options) {
  return guarded(__func__, [&] {
    given(target, "target");
    given(prog, "prog").settled().calibrate("fp8", given(options, "options").calibration);
  });
}
