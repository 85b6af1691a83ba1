// The C interface's shapes and dynamic dims.
#include "migraphx/guard.h"
#include "migraphx/shape.h"

using namespace sardonyx;
using namespace sardonyx::mgx;

SARDONYX_MIGRAPHX_OBJECT(optimals)
SARDONYX_MIGRAPHX_OBJECT(dynamic_dimension)
SARDONYX_MIGRAPHX_OBJECT(dynamic_dimensions)
SARDONYX_MIGRAPHX_OBJECT(shape)
SARDONYX_MIGRAPHX_OBJECT(shapes)

SARDONYX_MIGRAPHX migraphx_status migraphx_optimals_create(migraphx_optimals** optimals, const std::size_t* ptr,
                                                           std::size_t size) {
  return guarded(__func__, [&] {
    given_array(ptr, size, "ptr");
    give(optimals, "optimals", migraphx_optimals{{ptr, ptr + size}});
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_dynamic_dimension_create_min_max_optimals(
    migraphx_dynamic_dimension** dynamic_dimension, std::size_t min, std::size_t max, migraphx_optimals* optimals) {
  return guarded(__func__, [&] {
    if (min > max) fail(ErrorKind::kInvalidArgument, "a dim of at least {} and at most {}", min, max);
    give(dynamic_dimension, "dynamic_dimension",
         migraphx_dynamic_dimension{min, max, given(optimals, "optimals").sizes});
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_dynamic_dimension_create_min_max(
    migraphx_dynamic_dimension** dynamic_dimension, std::size_t min, std::size_t max) {
  return guarded(__func__, [&] {
    if (min > max) fail(ErrorKind::kInvalidArgument, "a dim of at least {} and at most {}", min, max);
    give(dynamic_dimension, "dynamic_dimension", migraphx_dynamic_dimension{min, max, {}});
  });
}

SARDONYX_MIGRAPHX migraphx_status
migraphx_dynamic_dimension_is_fixed(bool* out, const migraphx_dynamic_dimension* dynamic_dimension) {
  return guarded(__func__, [&] {
    const migraphx_dynamic_dimension& d = given(dynamic_dimension, "dynamic_dimension");
    given(out, "out") = d.min == d.max;
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_dynamic_dimension_equal(bool* out,
                                                                   const migraphx_dynamic_dimension* dynamic_dimension,
                                                                   const migraphx_dynamic_dimension* x) {
  return guarded(__func__, [&] { given(out, "out") = given(dynamic_dimension, "dynamic_dimension") == given(x, "x"); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_dynamic_dimensions_create(migraphx_dynamic_dimensions** dynamic_dimensions,
                                                                     const migraphx_dynamic_dimension* const* ptr,
                                                                     std::size_t size) {
  return guarded(__func__, [&] {
    given_array(ptr, size, "ptr");
    migraphx_dynamic_dimensions made;
    for (std::size_t k = 0; k < size; ++k) made.dims.push_back(given(ptr[k], "ptr"));
    give(dynamic_dimensions, "dynamic_dimensions", std::move(made));
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_dynamic_dimensions_size(std::size_t* out,
                                                                   migraphx_dynamic_dimensions* dynamic_dimensions) {
  return guarded(__func__, [&] { given(out, "out") = given(dynamic_dimensions, "dynamic_dimensions").dims.size(); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_dynamic_dimensions_get(const migraphx_dynamic_dimension** out,
                                                                  migraphx_dynamic_dimensions* dynamic_dimensions,
                                                                  std::size_t idx) {
  return guarded(__func__, [&] {
    const auto& dims = given(dynamic_dimensions, "dynamic_dimensions").dims;
    if (idx >= dims.size()) fail(ErrorKind::kInvalidArgument, "dim {} of {}", idx, dims.size());
    given(out, "out") = &dims[idx];
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_create(migraphx_shape** shape, migraphx_shape_datatype_t type,
                                                        std::size_t* lengths, std::size_t lengths_size) {
  return guarded(__func__, [&] {
    given_array(lengths, lengths_size, "lengths");
    give(shape, "shape", standard_shape(type, {lengths, lengths_size}));
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_create_with_strides(migraphx_shape** shape,
                                                                     migraphx_shape_datatype_t type,
                                                                     std::size_t* lengths, std::size_t lengths_size,
                                                                     std::size_t* strides, std::size_t strides_size) {
  return guarded(__func__, [&] {
    given_array(lengths, lengths_size, "lengths");
    given_array(strides, strides_size, "strides");
    if (lengths_size != strides_size)
      fail(ErrorKind::kInvalidArgument, "{} lengths and {} strides", lengths_size, strides_size);
    migraphx_shape s = standard_shape(type, {lengths, lengths_size});
    if (strides_size > 0) s.strides.assign(strides, strides + strides_size);
    bytes_of(s);  // throws if the strides overflow
    give(shape, "shape", std::move(s));
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_create_scalar(migraphx_shape** shape, migraphx_shape_datatype_t type) {
  return guarded(__func__, [&] { give(shape, "shape", standard_shape(type, {})); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_create_dynamic(migraphx_shape** shape, migraphx_shape_datatype_t type,
                                                                migraphx_dynamic_dimensions* dims) {
  return guarded(__func__, [&] {
    check_type(type);
    if (given(dims, "dims").dims.empty()) fail(ErrorKind::kInvalidArgument, "a dynamic shape without dims");
    give(shape, "shape", migraphx_shape{type, {}, {}, dims->dims});
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_lengths(const std::size_t** out, std::size_t* out_size,
                                                         const migraphx_shape* shape) {
  return guarded(__func__, [&] {
    if (given(shape, "shape").is_dynamic()) fail(ErrorKind::kInvalidArgument, "a dynamic shape has no lengths");
    given(out, "out") = shape->lengths.data();
    given(out_size, "out_size") = shape->lengths.size();
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_strides(const std::size_t** out, std::size_t* out_size,
                                                         const migraphx_shape* shape) {
  return guarded(__func__, [&] {
    if (given(shape, "shape").is_dynamic()) fail(ErrorKind::kInvalidArgument, "a dynamic shape has no strides");
    given(out, "out") = shape->strides.data();
    given(out_size, "out_size") = shape->strides.size();
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_dyn_dims(migraphx_dynamic_dimensions** out,
                                                          const migraphx_shape* shape) {
  return guarded(__func__, [&] {
    if (!given(shape, "shape").is_dynamic()) fail(ErrorKind::kInvalidArgument, "the shape is not dynamic");
    give(out, "out", migraphx_dynamic_dimensions{shape->dynamic});
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_type(migraphx_shape_datatype_t* out, const migraphx_shape* shape) {
  return guarded(__func__, [&] { given(out, "out") = given(shape, "shape").type; });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_elements(std::size_t* out, const migraphx_shape* shape) {
  return guarded(__func__, [&] { given(out, "out") = elements_of(given(shape, "shape")); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_bytes(std::size_t* out, const migraphx_shape* shape) {
  return guarded(__func__, [&] { given(out, "out") = bytes_of(given(shape, "shape")); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_ndim(std::size_t* out, const migraphx_shape* shape) {
  return guarded(__func__, [&] {
    const migraphx_shape& s = given(shape, "shape");
    given(out, "out") = s.is_dynamic() ? s.dynamic.size() : s.lengths.size();
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_equal(bool* out, const migraphx_shape* shape,
                                                       const migraphx_shape* x) {
  return guarded(__func__, [&] { given(out, "out") = given(shape, "shape") == given(x, "x"); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_standard(bool* out, const migraphx_shape* shape) {
  return guarded(__func__, [&] {
    const migraphx_shape& s = given(shape, "shape");
    given(out, "out") = !s.is_dynamic() && is_standard(s);
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_dynamic(bool* out, const migraphx_shape* shape) {
  return guarded(__func__, [&] { given(out, "out") = given(shape, "shape").is_dynamic(); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shape_index(std::size_t* out, const migraphx_shape* shape, std::size_t i) {
  return guarded(__func__, [&] { given(out, "out") = index_of(given(shape, "shape"), i); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shapes_size(std::size_t* out, migraphx_shapes* shapes) {
  return guarded(__func__, [&] { given(out, "out") = given(shapes, "shapes").shapes.size(); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_shapes_get(const migraphx_shape** out, migraphx_shapes* shapes,
                                                      std::size_t idx) {
  return guarded(__func__, [&] {
    const auto& all = given(shapes, "shapes").shapes;
    if (idx >= all.size()) fail(ErrorKind::kInvalidArgument, "shape {} of {}", idx, all.size());
    given(out, "out") = &all[idx];
  });
}
