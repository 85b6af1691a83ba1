// Shapes of MIGraphX's interface, and element types.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "migraphx/objects.h"

namespace sardonyx::mgx {

/// Throws Error: kInvalidArgument for a number that is no type, kUnsupported for types that tensors can't have here.
DType dtype_of(migraphx_shape_datatype_t type);
/// Throws Error(kUnsupported), naming `what`, for types that MIGraphX's interface does not have (int4 and the like).
migraphx_shape_datatype_t type_of(DType dtype, const std::string& what);
/// "float_type".
std::string_view name_of(migraphx_shape_datatype_t type);
/// The type of a name: "float_type", "float" or "float_t". Throws Error(kInvalidArgument).
migraphx_shape_datatype_t parse_type(std::string_view name);
/// Throws Error(kInvalidArgument) for a number that is no type.
void check_type(migraphx_shape_datatype_t type);

/// A row-major shape; no lengths: a scalar. Throws Error(kInvalidArgument) if the elements' bytes overflow.
migraphx_shape standard_shape(migraphx_shape_datatype_t type, std::span<const std::size_t> lengths);
migraphx_shape shape_of_dims(migraphx_shape_datatype_t type, std::span<const std::int64_t> dims);

/// Of shapes that are not dynamic; they throw Error(kInvalidArgument) for dynamic ones.
std::size_t elements_of(const migraphx_shape& s);
/// Number of elements from the first to the last one in memory.
std::size_t element_space(const migraphx_shape& s);
bool is_standard(const migraphx_shape& s);
/// Where element `i` in row-major order is in memory, in elements. Throws Error(kInvalidArgument) beyond the end.
std::size_t index_of(const migraphx_shape& s, std::size_t i);
/// Bytes from the first to the last element; of a dynamic shape, of its largest sizes.
std::size_t bytes_of(const migraphx_shape& s);
/// The lengths as dims; a scalar has none.
std::vector<std::int64_t> dims_of(const migraphx_shape& s);
/// "float_type, {3, 4}, {4, 1}", as MIGraphX prints it.
std::string to_text(const migraphx_shape& s);

}  // namespace sardonyx::mgx
