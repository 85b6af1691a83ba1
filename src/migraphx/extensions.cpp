// What the Python module needs beyond MIGraphX's C interface: functions with our prefix, in its form.
#include "migraphx/argument.h"
#include "migraphx/device_memory.h"
#include "migraphx/guard.h"
#include "migraphx/operators.h"
#include "migraphx/program.h"
#include "migraphx/shape.h"

using namespace sardonyx;
using namespace sardonyx::mgx;

namespace {

/// Texts stay valid until this thread's next call that returns one.
void give_text(const char** out, std::string value) {
  thread_local std::string kept;
  kept = std::move(value);
  given(out, "out") = kept.c_str();
}

const Instruction& instruction(const migraphx_instruction* i) { return *given(i, "instruction").instruction; }

}  // namespace

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_program_text(const char** out, const migraphx_program* program) {
  return guarded(__func__, [&] { give_text(out, given(program, "program").settled().text()); });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_program_is_compiled(bool* out, const migraphx_program* program) {
  return guarded(__func__, [&] { given(out, "out") = given(program, "program").program.is_compiled(); });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_program_trim(migraphx_program** out,
                                                                 const migraphx_program* program, std::size_t nodes) {
  return guarded(__func__,
                 [&] { give(out, "out", migraphx_program{given(program, "program").settled().trimmed(nodes)}); });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_program_compile_reference(migraphx_program* program) {
  return guarded(__func__, [&] { given(program, "program").settled().compile_reference(); });
}

/// The bytes of a file of migraphx_save, valid until this thread's next call of this function.
SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_save_buffer(const char** out, std::size_t* size,
                                                                const migraphx_program* program) {
  return guarded(__func__, [&] {
    thread_local std::string kept;
    kept = given(program, "program").settled().serialize("msgpack");
    given(size, "size") = kept.size();
    given(out, "out") = kept.data();
  });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_load_buffer(migraphx_program** out, const char* data,
                                                                std::size_t size) {
  return guarded(__func__, [&] {
    given_array(data, size, "data");
    give(out, "out", migraphx_program{MigraphxProgram::deserialize(std::string(data, size), "msgpack")});
  });
}

/// The sizes of all dims that the file leaves open under this name.
SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_onnx_options_set_dim_param(migraphx_onnx_options* options,
                                                                               const char* name,
                                                                               const migraphx_dynamic_dimension* dim) {
  return guarded(__func__, [&] { given(options, "options").dim_params[&given(name, "name")] = given(dim, "dim"); });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_shape_text(const char** out, const migraphx_shape* shape) {
  return guarded(__func__, [&] { give_text(out, to_text(given(shape, "shape"))); });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_module_text(const char** out, const migraphx_module* module) {
  return guarded(__func__, [&] { give_text(out, given(module, "module").text()); });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_module_size(std::size_t* out, const migraphx_module* module) {
  return guarded(__func__, [&] { given(out, "out") = given(module, "module").instructions().size(); });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_module_get(migraphx_instruction** out,
                                                               const migraphx_module* module, std::size_t index) {
  return guarded(__func__, [&] {
    const auto& all = given(module, "module").instructions();
    if (index >= all.size()) fail(ErrorKind::kInvalidArgument, "instruction {} of {}", index, all.size());
    give(out, "out", migraphx_instruction{all[index]});
  });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_module_replace_return(migraphx_instruction** out,
                                                                          migraphx_module* module,
                                                                          migraphx_instructions* args) {
  return guarded(__func__, [&] {
    given(out, "out");
    give(out, "out", migraphx_instruction{given(module, "module").add_return(given(args, "args").instructions, true)});
  });
}

/// A macro, at the module's end or before an instruction.
SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_module_add_macro(migraphx_instruction** out,
                                                                     migraphx_module* module,
                                                                     const migraphx_instruction* before,
                                                                     const char* name, const char* attributes,
                                                                     migraphx_instructions* args) {
  return guarded(__func__, [&] {
    given(out, "out");
    const migraphx_operation op =
        make_operation(std::string("macro:") + &given(name, "name"), &given(attributes, "attributes"));
    migraphx_module& m = given(module, "module");
    const auto& inputs = given(args, "args").instructions;
    give(
        out, "out",
        migraphx_instruction{before ? m.insert_operator(before->instruction, op, inputs) : m.add_operator(op, inputs)});
  });
}

/// A number that is the same for handles of the same instruction, and for no others.
SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_instruction_id(std::size_t* out, const migraphx_instruction* i) {
  return guarded(__func__, [&] { given(out, "out") = reinterpret_cast<std::size_t>(&instruction(i)); });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_instruction_name(const char** out, const migraphx_instruction* i) {
  return guarded(__func__, [&] { give_text(out, instruction(i).op.name); });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_instruction_operation(migraphx_operation** out,
                                                                          const migraphx_instruction* i) {
  return guarded(__func__, [&] { give(out, "out", instruction(i).op); });
}

/// The shape of the result; of several results, a shape of tuple_type.
SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_instruction_shape(migraphx_shape** out,
                                                                      const migraphx_instruction* i) {
  return guarded(__func__, [&] {
    const Instruction& of = instruction(i);
    if (of.is_tuple || of.results.empty())
      give(out, "out", migraphx_shape{migraphx_shape_tuple_type, {}, {}, {}});
    else
      give(out, "out", of.results[0].shape);
  });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_instruction_inputs_size(std::size_t* out,
                                                                            const migraphx_instruction* i) {
  return guarded(__func__, [&] { given(out, "out") = instruction(i).inputs.size(); });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_instruction_input(migraphx_instruction** out,
                                                                      const migraphx_instruction* i,
                                                                      std::size_t index) {
  return guarded(__func__, [&] {
    const auto& inputs = instruction(i).inputs;
    if (index >= inputs.size()) fail(ErrorKind::kInvalidArgument, "input {} of {}", index, inputs.size());
    give(out, "out", migraphx_instruction{inputs[index]});
  });
}

/// A copy of a literal's elements.
SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_instruction_literal(migraphx_argument** out,
                                                                        const migraphx_instruction* i) {
  return guarded(__func__, [&] {
    const Instruction& of = instruction(i);
    if (of.kind != Instruction::Kind::kLiteral) fail(ErrorKind::kInvalidArgument, "'{}' is no literal", of.op.name);
    const model::Tensor& t = of.constants.at(0);
    t.require();
    migraphx_argument a = zeros(of.results[0].shape);
    std::copy(t.data, t.data + t.bytes, static_cast<std::byte*>(a.data));
    give(out, "out", std::move(a));
  });
}

/// The attributes as JSON: those that were given, or all.
SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_operation_values(const char** out, const migraphx_operation* op,
                                                                     bool all) {
  return guarded(__func__, [&] {
    const migraphx_operation& o = given(op, "op");
    give_text(out, (all ? all_attributes(o) : o.attributes).dump());
  });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_operators_size(std::size_t* out) {
  return guarded(__func__, [&] { given(out, "out") = operator_names().size(); });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_operator_name_at_index(const char** out, std::size_t index) {
  return guarded(__func__, [&] {
    const std::vector<std::string> names = operator_names();
    if (index >= names.size()) fail(ErrorKind::kInvalidArgument, "operator {} of {}", index, names.size());
    give_text(out, names[index]);
  });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_argument_on_device(bool* out, const migraphx_argument* argument) {
  return guarded(__func__, [&] { given(out, "out") = given(argument, "argument").on_device; });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_allocate_gpu(migraphx_argument** out, const migraphx_shape* shape,
                                                                 bool pinned) {
  return guarded(__func__, [&] { give(out, "out", allocate_on_gpu(given(shape, "shape"), pinned)); });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_to_gpu(migraphx_argument** out, const migraphx_argument* argument,
                                                           bool pinned) {
  return guarded(__func__, [&] { give(out, "out", to_gpu(given(argument, "argument"), pinned)); });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_from_gpu(migraphx_argument** out,
                                                             const migraphx_argument* argument) {
  return guarded(__func__, [&] { give(out, "out", from_gpu(given(argument, "argument"))); });
}

/// The device of the target "gpu": "hip:0", "sim:gfx942", "host".
SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_gpu_device(const char** out) {
  return guarded(__func__, [&] { give_text(out, gpu_device()); });
}

SARDONYX_MIGRAPHX migraphx_status sardonyx_migraphx_gpu_sync() {
  return guarded(__func__, [] { synchronize_gpu(); });
}
