// The C interface's modules, instructions, operations, traces and custom operators: graphs that a program builds
// itself. They are refused; the functions exist so that programs link and learn why.
#include <cstdarg>

#include "migraphx/guard.h"

using namespace sardonyx;
using namespace sardonyx::mgx;

struct migraphx_program;
struct migraphx_module;
struct migraphx_instruction;
struct migraphx_operation;
struct migraphx_context;

struct migraphx_modules {};
struct migraphx_instructions {};
struct migraphx_trace_info {};
struct migraphx_experimental_custom_op {};

namespace {

migraphx_status refuse(const char* function) {
  return guarded(function, [] {
    fail(ErrorKind::kUnsupported, "graphs can't be built or traced through this interface; parse an ONNX model");
  });
}

}  // namespace

SARDONYX_MIGRAPHX_OBJECT(instructions)
SARDONYX_MIGRAPHX_OBJECT(modules)
SARDONYX_MIGRAPHX_OBJECT(trace_info)
SARDONYX_MIGRAPHX_OBJECT(experimental_custom_op)

#define SARDONYX_REFUSED(name, ...) \
  SARDONYX_MIGRAPHX migraphx_status migraphx_##name(__VA_ARGS__) { return refuse(__func__); }

SARDONYX_REFUSED(instruction_destroy, migraphx_instruction*)
SARDONYX_REFUSED(instruction_assign_to, migraphx_instruction*, const migraphx_instruction*)
SARDONYX_REFUSED(instructions_create, migraphx_instructions**, const migraphx_instruction* const*, std::size_t)
SARDONYX_REFUSED(modules_create, migraphx_modules**, migraphx_module**, std::size_t)
SARDONYX_REFUSED(module_create, migraphx_module**, char*)
SARDONYX_REFUSED(module_print, const migraphx_module*)
SARDONYX_REFUSED(module_add_instruction, migraphx_instruction**, migraphx_module*, migraphx_operation*,
                 migraphx_instructions*)
SARDONYX_REFUSED(module_add_instruction_with_mod_args, migraphx_instruction**, migraphx_module*, migraphx_operation*,
                 migraphx_instructions*, migraphx_modules*)
SARDONYX_REFUSED(module_add_literal, migraphx_instruction**, migraphx_module*, const migraphx_shape*, const char*)
SARDONYX_REFUSED(module_add_parameter, migraphx_instruction**, migraphx_module*, const char*, const migraphx_shape*)
SARDONYX_REFUSED(module_add_return, migraphx_instruction**, migraphx_module*, migraphx_instructions*)
SARDONYX_REFUSED(module_add_allocation, migraphx_instruction**, migraphx_module*, const migraphx_shape*)
SARDONYX_REFUSED(program_get_main_module, migraphx_module**, migraphx_program*)
SARDONYX_REFUSED(program_create_module, migraphx_module**, migraphx_program*, const char*)
SARDONYX_REFUSED(operation_destroy, migraphx_operation*)
SARDONYX_REFUSED(operation_assign_to, migraphx_operation*, const migraphx_operation*)
SARDONYX_REFUSED(operation_create, migraphx_operation**, const char*, const char*, ...)
SARDONYX_REFUSED(operation_name, char*, std::size_t, migraphx_operation*)
SARDONYX_REFUSED(trace_info_create, migraphx_trace_info**)
SARDONYX_REFUSED(trace_info_get_index, std::size_t*, const migraphx_trace_info*)
SARDONYX_REFUSED(trace_info_get_name, const char**, const migraphx_trace_info*)
SARDONYX_REFUSED(trace_info_get_result, const migraphx_argument**, const migraphx_trace_info*)
SARDONYX_REFUSED(program_run_trace, migraphx_arguments**, migraphx_program*, void*, void*, void*)
SARDONYX_REFUSED(experimental_custom_op_create, migraphx_experimental_custom_op**, void*, void*, void*, const char*,
                 const char*)
SARDONYX_REFUSED(experimental_custom_op_set_compute, migraphx_experimental_custom_op*, void*)
SARDONYX_REFUSED(experimental_custom_op_set_compute_shape, migraphx_experimental_custom_op*, void*)
SARDONYX_REFUSED(experimental_custom_op_set_output_alias, migraphx_experimental_custom_op*, void*)
SARDONYX_REFUSED(experimental_custom_op_set_runs_on_offload_target, migraphx_experimental_custom_op*, void*)
SARDONYX_REFUSED(experimental_custom_op_register, migraphx_experimental_custom_op*)
