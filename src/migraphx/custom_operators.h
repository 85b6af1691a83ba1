// Custom operators: functions of the application that compute instructions of a graph
// (migraphx_experimental_custom_op).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "migraphx/graph.h"
#include "migraphx/objects.h"

struct migraphx_context;

extern "C" {
// What the application gives. They return migraphx_status_success, or write a message with its closing zero.
using migraphx_custom_op_compute = migraphx_status (*)(migraphx_argument* out, void* object, char* message,
                                                       std::size_t message_size, migraphx_context* context,
                                                       migraphx_shape* output, migraphx_arguments* inputs);
using migraphx_custom_op_compute_shape = migraphx_status (*)(migraphx_shape* out, void* object, char* message,
                                                             std::size_t message_size, migraphx_shapes* inputs);
using migraphx_custom_op_output_alias = migraphx_status (*)(std::size_t* out, std::size_t* out_size, void* object,
                                                            char* message, std::size_t message_size,
                                                            migraphx_shapes* inputs);
using migraphx_custom_op_runs_on_offload_target = migraphx_status (*)(bool* out, void* object, char* message,
                                                                      std::size_t message_size);
using migraphx_custom_op_copy = migraphx_status (*)(void** out, void* input);
using migraphx_custom_op_delete = migraphx_status (*)(void* input);
}

struct migraphx_experimental_custom_op {
  std::string name;
  std::string type;  ///< of the application's object, for messages
  std::shared_ptr<void> object;
  migraphx_custom_op_compute compute = nullptr;
  migraphx_custom_op_compute_shape compute_shape = nullptr;
  /// Not called: results may lie in an input's memory without it.
  migraphx_custom_op_output_alias output_alias = nullptr;
  migraphx_custom_op_runs_on_offload_target runs_on_offload_target = nullptr;
};

namespace sardonyx::mgx {

using CustomOperator = ::migraphx_experimental_custom_op;

/// Makes an operator known by its name, in place of one that was registered before. Throws Error(kInvalidArgument) for
/// a name that an operator of operators.h has, and for one without compute or compute_shape.
void register_custom_operator(CustomOperator op);
/// Null: none is registered.
std::shared_ptr<const CustomOperator> find_custom_operator(const std::string& name);

/// Calls of the application's functions. They throw Error(kUnsupported) with its message if they fail.
migraphx_shape shape_of_custom(const CustomOperator& op, const std::vector<migraphx_shape>& inputs);
migraphx_argument compute_custom(const CustomOperator& op, migraphx_context* context, migraphx_shape output,
                                 std::vector<migraphx_argument> inputs);
/// Whether compute() wants and gives device memory, where the program runs on a GPU.
bool runs_on_device(const CustomOperator& op);

/// Whether no ONNX nodes compute the instruction: custom operators, and the memory that they write to ("allocate").
bool is_outside(const Instruction& i);

}  // namespace sardonyx::mgx
