// The C interface's arguments, targets, and lists of arguments and parameters.
#include "migraphx/argument.h"
#include "migraphx/guard.h"
#include "migraphx/shape.h"

using namespace sardonyx;
using namespace sardonyx::mgx;

SARDONYX_MIGRAPHX_OBJECT(argument)
SARDONYX_MIGRAPHX_OBJECT(arguments)
SARDONYX_MIGRAPHX_OBJECT(target)
SARDONYX_MIGRAPHX_OBJECT(program_parameter_shapes)
SARDONYX_MIGRAPHX_OBJECT(program_parameters)

SARDONYX_MIGRAPHX migraphx_status migraphx_argument_create(migraphx_argument** argument, const migraphx_shape* shape,
                                                           void* buffer) {
  return guarded(__func__, [&] {
    if (given(shape, "shape").is_dynamic())
      fail(ErrorKind::kInvalidArgument, "an argument needs a shape that is not dynamic");
    give(argument, "argument", migraphx_argument{*shape, nullptr, buffer, false});
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_argument_create_empty(migraphx_argument** argument,
                                                                 const migraphx_shape* shape) {
  return guarded(__func__, [&] { give(argument, "argument", zeros(given(shape, "shape"))); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_argument_shape(const migraphx_shape** out,
                                                          const migraphx_argument* argument) {
  return guarded(__func__, [&] { given(out, "out") = &given(argument, "argument").shape; });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_argument_buffer(char** out, const migraphx_argument* argument) {
  return guarded(__func__, [&] { given(out, "out") = static_cast<char*>(given(argument, "argument").data); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_argument_equal(bool* out, const migraphx_argument* argument,
                                                          const migraphx_argument* x) {
  return guarded(__func__, [&] { given(out, "out") = equal(given(argument, "argument"), given(x, "x")); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_argument_save(const migraphx_argument* a, const char* filename) {
  return guarded(__func__, [&] { save(given(a, "a"), &given(filename, "filename")); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_argument_load(migraphx_argument** out, const char* filename) {
  return guarded(__func__, [&] { give(out, "out", load_argument(&given(filename, "filename"))); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_argument_generate(migraphx_argument** out, const migraphx_shape* s,
                                                             std::size_t seed) {
  return guarded(__func__, [&] { give(out, "out", generate(given(s, "s"), seed)); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_target_create(migraphx_target** target, const char* name) {
  return guarded(__func__, [&] {
    const std::string which = &given(name, "name");
    if (which != "gpu" && which != "ref" && which != "cpu")
      throw UnknownTarget(ErrorKind::kInvalidArgument,
                          "there is no target '" + which + "'; the targets are gpu, ref and cpu");
    give(target, "target", migraphx_target{which});
  });
}

SARDONYX_MIGRAPHX migraphx_status
migraphx_program_parameter_shapes_size(std::size_t* out, migraphx_program_parameter_shapes* program_parameter_shapes) {
  return guarded(
      __func__, [&] { given(out, "out") = given(program_parameter_shapes, "program_parameter_shapes").shapes.size(); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_program_parameter_shapes_get(
    const migraphx_shape** out, migraphx_program_parameter_shapes* program_parameter_shapes, const char* name) {
  return guarded(__func__, [&] {
    const auto& shapes = given(program_parameter_shapes, "program_parameter_shapes").shapes;
    const auto found = shapes.find(&given(name, "name"));
    if (found == shapes.end()) fail(ErrorKind::kInvalidArgument, "the program has no parameter '{}'", name);
    given(out, "out") = &found->second;
  });
}

SARDONYX_MIGRAPHX migraphx_status
migraphx_program_parameter_shapes_names(const char** out, migraphx_program_parameter_shapes* program_parameter_shapes) {
  return guarded(__func__, [&] {
    std::size_t k = 0;
    for (const auto& [name, shape] : given(program_parameter_shapes, "program_parameter_shapes").shapes)
      (&given(out, "out"))[k++] = name.c_str();
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_program_parameters_create(migraphx_program_parameters** program_parameters) {
  return guarded(__func__, [&] { give(program_parameters, "program_parameters", migraphx_program_parameters{}); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_program_parameters_add(migraphx_program_parameters* program_parameters,
                                                                  const char* name, const migraphx_argument* argument) {
  return guarded(__func__, [&] {
    given(program_parameters, "program_parameters").arguments[&given(name, "name")] = given(argument, "argument");
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_arguments_size(std::size_t* out, migraphx_arguments* arguments) {
  return guarded(__func__, [&] { given(out, "out") = given(arguments, "arguments").arguments.size(); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_arguments_get(const migraphx_argument** out, migraphx_arguments* arguments,
                                                         std::size_t idx) {
  return guarded(__func__, [&] {
    const auto& all = given(arguments, "arguments").arguments;
    if (idx >= all.size()) fail(ErrorKind::kInvalidArgument, "argument {} of {}", idx, all.size());
    given(out, "out") = &all[idx];
  });
}
