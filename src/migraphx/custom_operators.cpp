#include "migraphx/custom_operators.h"

#include <array>
#include <map>
#include <mutex>

#include "migraphx/guard.h"
#include "migraphx/operators.h"
#include "migraphx/program.h"
#include "support/text.h"

using namespace sardonyx;
using namespace sardonyx::mgx;

namespace sardonyx::mgx {
namespace {

using Message = std::array<char, 256>;

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const CustomOperator>> operators;
};

// Never destroyed: programs of the application's static objects may outlive it.
Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

void check_call(migraphx_status status, const char* function, const CustomOperator& op, Message& message) {
  message.back() = 0;
  if (status != migraphx_status_success)
    fail(ErrorKind::kUnsupported, "Error in {} of: {}: {}", function, op.type,
         message[0] ? message.data() : "it gives no reason");
}

}  // namespace

void register_custom_operator(CustomOperator op) {
  if (op.name.empty()) fail(ErrorKind::kInvalidArgument, "a custom operator needs a name");
  if (!op.compute || !op.compute_shape)
    fail(ErrorKind::kInvalidArgument, "the custom operator {} has no {}", quote(op.name),
         op.compute ? "compute_shape" : "compute");
  for (const std::string& known : operator_names())
    if (known == op.name)
      fail(ErrorKind::kInvalidArgument, "there is an operator {} already; give the custom one another name",
           quote(op.name));
  const std::lock_guard lock(registry().mutex);
  std::string name = op.name;
  registry().operators[std::move(name)] = std::make_shared<const CustomOperator>(std::move(op));
}

std::shared_ptr<const CustomOperator> find_custom_operator(const std::string& name) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().operators.find(name);
  return found == registry().operators.end() ? nullptr : found->second;
}

migraphx_shape shape_of_custom(const CustomOperator& op, const std::vector<migraphx_shape>& inputs) {
  migraphx_shape out;
  migraphx_shapes given{inputs};
  Message message{};
  check_call(op.compute_shape(&out, op.object.get(), message.data(), message.size(), &given), "compute_shape", op,
             message);
  return out;
}

migraphx_argument compute_custom(const CustomOperator& op, migraphx_context* context, migraphx_shape output,
                                 std::vector<migraphx_argument> inputs) {
  migraphx_argument out;
  migraphx_arguments given{std::move(inputs)};
  Message message{};
  check_call(op.compute(&out, op.object.get(), message.data(), message.size(), context, &output, &given), "compute", op,
             message);
  return out;
}

bool runs_on_device(const CustomOperator& op) {
  if (!op.runs_on_offload_target) return true;
  bool out = true;
  Message message{};
  check_call(op.runs_on_offload_target(&out, op.object.get(), message.data(), message.size()), "runs_on_offload_target",
             op, message);
  return out;
}

bool is_outside(const Instruction& i) { return i.op.custom || i.op.name == "allocate"; }

}  // namespace sardonyx::mgx

SARDONYX_MIGRAPHX_OBJECT(experimental_custom_op)

/// Copies the application's object with `copy`; the copy is destroyed with the last operator or program that has it.
SARDONYX_MIGRAPHX migraphx_status migraphx_experimental_custom_op_create(
    migraphx_experimental_custom_op** experimental_custom_op, void* obj, migraphx_custom_op_copy copy,
    migraphx_custom_op_delete destroy, const char* obj_typename, const char* name) {
  return guarded(__func__, [&] {
    migraphx_experimental_custom_op op;
    op.name = &given(name, "name");
    op.type = &given(obj_typename, "obj_typename");
    given(experimental_custom_op, "experimental_custom_op");
    if (!obj || !copy || !destroy)
      fail(ErrorKind::kInvalidArgument, "the object, or its function that copies or deletes, is null");
    void* own = nullptr;
    if (copy(&own, obj) != migraphx_status_success || own == nullptr)
      fail(ErrorKind::kUnsupported, "the object of {} can't be copied", quote(op.name));
    op.object = std::shared_ptr<void>(own, [destroy](void* p) { destroy(p); });
    give(experimental_custom_op, "experimental_custom_op", std::move(op));
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_experimental_custom_op_set_compute(migraphx_experimental_custom_op* obj,
                                                                              migraphx_custom_op_compute input) {
  return guarded(__func__, [&] { given(obj, "obj").compute = input; });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_experimental_custom_op_set_compute_shape(
    migraphx_experimental_custom_op* obj, migraphx_custom_op_compute_shape input) {
  return guarded(__func__, [&] { given(obj, "obj").compute_shape = input; });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_experimental_custom_op_set_output_alias(
    migraphx_experimental_custom_op* obj, migraphx_custom_op_output_alias input) {
  return guarded(__func__, [&] { given(obj, "obj").output_alias = input; });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_experimental_custom_op_set_runs_on_offload_target(
    migraphx_experimental_custom_op* obj, migraphx_custom_op_runs_on_offload_target input) {
  return guarded(__func__, [&] { given(obj, "obj").runs_on_offload_target = input; });
}

SARDONYX_MIGRAPHX migraphx_status
migraphx_experimental_custom_op_register(migraphx_experimental_custom_op* experimental_custom_op) {
  return guarded(__func__, [&] { register_custom_operator(given(experimental_custom_op, "experimental_custom_op")); });
}

/// Memory that a custom operator writes to: an input for it.
SARDONYX_MIGRAPHX migraphx_status migraphx_module_add_allocation(migraphx_instruction** out, migraphx_module* module,
                                                                 const migraphx_shape* s) {
  return guarded(__func__, [&] {
    given(out, "out");
    give(out, "out", migraphx_instruction{given(module, "module").add_allocation(given(s, "s"))});
  });
}
