// The C interface's execution contexts, and its list of ONNX operators.
#include "migraphx/guard.h"
#include "migraphx/program.h"
#include "ops/op.h"

using namespace sardonyx;
using namespace sardonyx::mgx;

namespace {

/// See MigraphxProgram::context().
MigraphxProgram& program_of(const migraphx_context* context) {
  return *reinterpret_cast<MigraphxProgram*>(const_cast<migraphx_context*>(&given(context, "context")));
}

/// Names of ONNX's own operators.
const std::vector<std::string>& onnx_operators() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const OpDef* op : OpRegistry::instance().all()) all.push_back(op->name);
    return all;
  }();
  return names;
}

}  // namespace

SARDONYX_MIGRAPHX migraphx_status migraphx_program_experimental_get_context(migraphx_context** out,
                                                                            const migraphx_program* program) {
  return guarded(__func__, [&] {
    const MigraphxProgram& p = given(program, "program").program;
    if (!p.is_compiled()) fail(ErrorKind::kInvalidArgument, "a program has no context before it is compiled");
    given(out, "out") = p.context();
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_context_finish(const migraphx_context* context) {
  return guarded(__func__, [&] { program_of(context).finish(); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_context_get_queue(void** out, migraphx_context* context) {
  return guarded(__func__, [&] { given(out, "out") = program_of(context).stream(); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_get_onnx_operators_size(std::size_t* out) {
  return guarded(__func__, [&] { given(out, "out") = onnx_operators().size(); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_get_onnx_operator_name_at_index(char** out, std::size_t index) {
  return guarded(__func__, [&] {
    const auto& names = onnx_operators();
    if (index >= names.size()) fail(ErrorKind::kInvalidArgument, "operator {} of {}", index, names.size());
    given(out, "out") = const_cast<char*>(names[index].c_str());
  });
}
