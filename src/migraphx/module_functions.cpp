// The C interface's modules, instructions and operations: graphs that a program builds itself; and traces of runs.
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "migraphx/guard.h"
#include "migraphx/program.h"

using namespace sardonyx;
using namespace sardonyx::mgx;

struct migraphx_modules {
  std::vector<migraphx_module*> modules;
};

struct migraphx_trace_info {
  std::size_t index = 0;
  std::string name;
  migraphx_argument result;
};

SARDONYX_MIGRAPHX_OBJECT(instruction)
SARDONYX_MIGRAPHX_OBJECT(instructions)
SARDONYX_MIGRAPHX_OBJECT(modules)
SARDONYX_MIGRAPHX_OBJECT(operation)
SARDONYX_MIGRAPHX_OBJECT(trace_info)

namespace {

/// Attributes in the form of printf.
std::string formatted(const char* format, std::va_list arguments) {
  std::va_list again;
  va_copy(again, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, arguments);
  std::string text(size < 0 ? 0 : static_cast<std::size_t>(size), 0);
  if (!text.empty()) std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  if (size < 0) fail(ErrorKind::kInvalidArgument, "the attributes' format is malformed");
  return text;
}

}  // namespace

SARDONYX_MIGRAPHX migraphx_status migraphx_operation_create(migraphx_operation** operation, const char* name,
                                                            const char* attributes, ...) {
  std::va_list arguments;
  va_start(arguments, attributes);
  const migraphx_status status = guarded(__func__, [&] {
    const std::string operator_name = &given(name, "name");
    give(operation, "operation",
         make_operation(operator_name, attributes ? formatted(attributes, arguments) : std::string()));
  });
  va_end(arguments);
  return status;
}

/// The name, cut to the memory's size, with its closing zero.
SARDONYX_MIGRAPHX migraphx_status migraphx_operation_name(char* out, std::size_t out_size,
                                                          migraphx_operation* operation) {
  return guarded(__func__, [&] {
    given_array(out, out_size, "out");
    const std::string& name = given(operation, "operation").name;
    if (out_size == 0) fail(ErrorKind::kInvalidArgument, "there is no memory for the name");
    const std::size_t n = std::min(name.size(), out_size - 1);
    std::memcpy(out, name.data(), n);
    out[n] = 0;
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_instructions_create(migraphx_instructions** instructions,
                                                               const migraphx_instruction* const* ptr,
                                                               std::size_t size) {
  return guarded(__func__, [&] {
    given_array(ptr, size, "ptr");
    migraphx_instructions list;
    for (std::size_t k = 0; k < size; ++k) list.instructions.push_back(given(ptr[k], "ptr").instruction);
    give(instructions, "instructions", std::move(list));
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_modules_create(migraphx_modules** modules, migraphx_module** ptr,
                                                          std::size_t size) {
  return guarded(__func__, [&] {
    given_array(ptr, size, "ptr");
    migraphx_modules list;
    for (std::size_t k = 0; k < size; ++k) list.modules.push_back(&given(ptr[k], "ptr"));
    give(modules, "modules", std::move(list));
  });
}

/// A module outside a program. Nothing destroys modules in this interface: it lives until the process ends.
SARDONYX_MIGRAPHX migraphx_status migraphx_module_create(migraphx_module** module, char* name) {
  return guarded(__func__, [&] {
    static std::mutex mutex;
    static auto* const all = new std::vector<std::unique_ptr<migraphx_module>>;  // callers keep pointers to its modules
    const std::string module_name = &given(name, "name");
    given(module, "module");
    const std::lock_guard lock(mutex);
    all->push_back(std::make_unique<migraphx_module>(module_name, nullptr));
    *module = all->back().get();
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_module_print(const migraphx_module* module) {
  return guarded(__func__, [&] {
    std::fputs((given(module, "module").text() + "\n").c_str(), stdout);
    std::fflush(stdout);
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_module_add_instruction(migraphx_instruction** out, migraphx_module* module,
                                                                  migraphx_operation* op, migraphx_instructions* args) {
  return guarded(__func__, [&] {
    given(out, "out");
    const auto& inputs = given(args, "args").instructions;
    give(out, "out", migraphx_instruction{given(module, "module").add_operator(given(op, "op"), inputs)});
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_module_add_instruction_with_mod_args(migraphx_instruction** out,
                                                                                migraphx_module* module,
                                                                                migraphx_operation* op,
                                                                                migraphx_instructions* args,
                                                                                migraphx_modules* module_refs) {
  return guarded(__func__, [&] {
    given(out, "out");
    const auto& inputs = given(args, "args").instructions;
    const auto& modules = given(module_refs, "module_refs").modules;
    give(out, "out", migraphx_instruction{given(module, "module").add_operator(given(op, "op"), inputs, modules)});
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_module_add_literal(migraphx_instruction** out, migraphx_module* module,
                                                              const migraphx_shape* shape, const char* buffer) {
  return guarded(__func__, [&] {
    given(out, "out");
    give(out, "out", migraphx_instruction{given(module, "module").add_literal(given(shape, "shape"), buffer)});
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_module_add_parameter(migraphx_instruction** out, migraphx_module* module,
                                                                const char* name, const migraphx_shape* shape) {
  return guarded(__func__, [&] {
    given(out, "out");
    const std::string parameter = &given(name, "name");
    give(out, "out", migraphx_instruction{given(module, "module").add_parameter(parameter, given(shape, "shape"))});
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_module_add_return(migraphx_instruction** out, migraphx_module* module,
                                                             migraphx_instructions* args) {
  return guarded(__func__, [&] {
    given(out, "out");
    give(out, "out", migraphx_instruction{given(module, "module").add_return(given(args, "args").instructions)});
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_program_get_main_module(migraphx_module** out, migraphx_program* program) {
  return guarded(__func__, [&] { given(out, "out") = &given(program, "program").program.graph().main(); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_program_create_module(migraphx_module** out, migraphx_program* program,
                                                                 const char* name) {
  return guarded(__func__,
                 [&] { given(out, "out") = &given(program, "program").program.graph().create(&given(name, "name")); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_trace_info_create(migraphx_trace_info** trace_info) {
  return guarded(__func__, [&] { give(trace_info, "trace_info", migraphx_trace_info{}); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_trace_info_get_index(std::size_t* out,
                                                                const migraphx_trace_info* trace_info) {
  return guarded(__func__, [&] { given(out, "out") = given(trace_info, "trace_info").index; });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_trace_info_get_name(const char** out,
                                                               const migraphx_trace_info* trace_info) {
  return guarded(__func__, [&] { given(out, "out") = given(trace_info, "trace_info").name.c_str(); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_trace_info_get_result(const migraphx_argument** out,
                                                                 const migraphx_trace_info* trace_info) {
  return guarded(__func__, [&] { given(out, "out") = &given(trace_info, "trace_info").result; });
}

/// Runs the program with every value on the way. The callback ends it by returning another status than success.
SARDONYX_MIGRAPHX migraphx_status migraphx_program_run_trace(migraphx_arguments** out, migraphx_program* program,
                                                             migraphx_program_parameters* params,
                                                             migraphx_status (*callback)(migraphx_trace_info*, void*),
                                                             void* data) {
  return guarded(__func__, [&] {
    const MigraphxProgram& p = given(program, "program").program;
    given(out, "out");
    const Arguments& arguments = given(params, "params").arguments;
    if (callback == nullptr) fail(ErrorKind::kInvalidArgument, "the argument 'callback' is null");
    const auto seen = [&](std::size_t index, const std::string& name, const migraphx_argument& value) {
      migraphx_trace_info info{index, name, value};
      if (callback(&info, data) != migraphx_status_success)
        fail(ErrorKind::kUnsupported, "the callback failed at instruction {} ({})", index, name);
    };
    give(out, "out", migraphx_arguments{p.run_trace(arguments, seen)});
  });
}
