// The objects behind the handles of MIGraphX's C interface. Callers see them as opaque pointers; the numbers of the
// enumerations are the interface's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sardonyx/dtype.h"

extern "C" {

enum migraphx_status {
  migraphx_status_success = 0,
  migraphx_status_bad_param = 1,
  migraphx_status_unknown_target = 3,
  migraphx_status_unknown_error = 4,
};

/// Element types since MIGraphX 2.13 (ROCm 7.1), which put fp4x2 before bool: programs built against older headers use
/// other numbers (docs/migraphx.md).
enum migraphx_shape_datatype_t {
  migraphx_shape_tuple_type,
  migraphx_shape_fp4x2_type,
  migraphx_shape_bool_type,
  migraphx_shape_half_type,
  migraphx_shape_float_type,
  migraphx_shape_double_type,
  migraphx_shape_uint8_type,
  migraphx_shape_int8_type,
  migraphx_shape_uint16_type,
  migraphx_shape_int16_type,
  migraphx_shape_int32_type,
  migraphx_shape_int64_type,
  migraphx_shape_uint32_type,
  migraphx_shape_uint64_type,
  migraphx_shape_fp8e4m3fnuz_type,
  migraphx_shape_fp8e4m3fn_type,
  migraphx_shape_fp8e5m2_type,
  migraphx_shape_bf16_type,
  migraphx_shape_fp8e5m2fnuz_type,
};
}

struct migraphx_optimals {
  std::set<std::size_t> sizes;
};

/// A dim that may have any size from min to max.
struct migraphx_dynamic_dimension {
  std::size_t min = 0, max = 0;
  std::set<std::size_t> optimals;
  bool operator==(const migraphx_dynamic_dimension&) const = default;
};

struct migraphx_dynamic_dimensions {
  std::vector<migraphx_dynamic_dimension> dims;
};

/// Element type and sizes: either lengths and strides (in elements), or dynamic dims. A scalar has the length 1 and the
/// stride 0.
struct migraphx_shape {
  migraphx_shape_datatype_t type = migraphx_shape_float_type;
  std::vector<std::size_t> lengths, strides;
  std::vector<migraphx_dynamic_dimension> dynamic;

  bool is_dynamic() const { return !dynamic.empty(); }
  bool is_scalar() const { return lengths.size() == 1 && lengths[0] == 1 && strides[0] == 0; }
  bool operator==(const migraphx_shape&) const = default;
};

struct migraphx_shapes {
  std::vector<migraphx_shape> shapes;
};

/// A tensor in memory of the caller or its own. Device memory if `on_device`.
struct migraphx_argument {
  migraphx_shape shape;
  std::shared_ptr<void> owner;
  void* data = nullptr;
  bool on_device = false;  ///< known for results only: what callers pass is where the program expects it
};

struct migraphx_arguments {
  std::vector<migraphx_argument> arguments;
};

struct migraphx_target {
  std::string name;  ///< "gpu", "ref" or "cpu"
};

struct migraphx_program_parameter_shapes {
  std::map<std::string, migraphx_shape> shapes;
};

struct migraphx_program_parameters {
  std::map<std::string, migraphx_argument> arguments;
};

struct migraphx_onnx_options {
  std::map<std::string, std::vector<std::size_t>> lengths;
  std::map<std::string, std::vector<migraphx_dynamic_dimension>> dynamic;
  std::map<std::string, migraphx_dynamic_dimension> dim_params;  ///< for open dims by their names in the file
  migraphx_dynamic_dimension default_dim{1, 1, {}};              ///< for the other dims that the file leaves open
  std::optional<std::int64_t> loop_iterations, loop_limit;       ///< unset: loops run as often as the model says
  std::string external_data_path;
};

struct migraphx_file_options {
  std::string format = "msgpack";
};

struct migraphx_compile_options {
  bool offload_copy = false, fast_math = true, exhaustive_tune = false;
};

/// Of frozen graphs. With nhwc, inputs and outputs of rank 4 are in NCHW, and the graph in NHWC.
struct migraphx_tf_options {
  bool nhwc = false;
  std::size_t batch = 1;  ///< for dims that the graph leaves open
  std::map<std::string, std::vector<std::size_t>> dims;
  std::vector<std::string> outputs;
};

struct migraphx_quantize_op_names {
  std::vector<std::string> names;
};

struct migraphx_quantize_int8_options {
  std::vector<migraphx_program_parameters> calibration;
  std::set<std::string> op_names;
};

struct migraphx_quantize_fp8_options {
  std::vector<migraphx_program_parameters> calibration;
};
