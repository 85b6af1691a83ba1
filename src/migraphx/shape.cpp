#include "migraphx/shape.h"

#include <array>
#include <limits>
#include <numeric>

#include "migraphx/guard.h"
#include "support/error.h"
#include "support/text.h"

namespace sardonyx::mgx {
namespace {

struct Type {
  migraphx_shape_datatype_t type;
  std::string_view name;
  DType dtype;
  bool supported = true;
};

constexpr std::array kTypes{
    Type{migraphx_shape_tuple_type, "tuple_type", DType::kFloat32, false},
    Type{migraphx_shape_fp4x2_type, "fp4x2_type", DType::kFloat4E2M1, false},
    Type{migraphx_shape_bool_type, "bool_type", DType::kBool},
    Type{migraphx_shape_half_type, "half_type", DType::kFloat16},
    Type{migraphx_shape_float_type, "float_type", DType::kFloat32},
    Type{migraphx_shape_double_type, "double_type", DType::kFloat64},
    Type{migraphx_shape_uint8_type, "uint8_type", DType::kUInt8},
    Type{migraphx_shape_int8_type, "int8_type", DType::kInt8},
    Type{migraphx_shape_uint16_type, "uint16_type", DType::kUInt16},
    Type{migraphx_shape_int16_type, "int16_type", DType::kInt16},
    Type{migraphx_shape_int32_type, "int32_type", DType::kInt32},
    Type{migraphx_shape_int64_type, "int64_type", DType::kInt64},
    Type{migraphx_shape_uint32_type, "uint32_type", DType::kUInt32},
    Type{migraphx_shape_uint64_type, "uint64_type", DType::kUInt64},
    Type{migraphx_shape_fp8e4m3fnuz_type, "fp8e4m3fnuz_type", DType::kFloat8E4M3FNUZ},
    Type{migraphx_shape_fp8e4m3fn_type, "fp8e4m3fn_type", DType::kFloat8E4M3FN},
    Type{migraphx_shape_fp8e5m2_type, "fp8e5m2_type", DType::kFloat8E5M2},
    Type{migraphx_shape_bf16_type, "bf16_type", DType::kBFloat16},
    Type{migraphx_shape_fp8e5m2fnuz_type, "fp8e5m2fnuz_type", DType::kFloat8E5M2FNUZ},
};

const Type& row(migraphx_shape_datatype_t type) {
  for (const Type& t : kTypes)
    if (t.type == type) return t;
  fail(ErrorKind::kInvalidArgument, "{} is no element type", static_cast<int>(type));
}

std::size_t times(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > std::numeric_limits<std::int64_t>::max() / 16)
    fail(ErrorKind::kInvalidArgument, "the shape has too many elements");
  return product;
}

std::size_t plus(std::size_t a, std::size_t b) {
  std::size_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) fail(ErrorKind::kInvalidArgument, "the shape has too many elements");
  return sum;
}

void require_static(const migraphx_shape& s, std::string_view what) {
  if (s.is_dynamic()) fail(ErrorKind::kInvalidArgument, "a dynamic shape has no {}", what);
}

std::size_t element_size(migraphx_shape_datatype_t type) {
  const Type& t = row(type);
  return type == migraphx_shape_tuple_type ? 0 : size_of(t.dtype);
}

std::vector<std::size_t> packed_strides(const std::vector<std::size_t>& lengths) {
  std::vector<std::size_t> strides(lengths.size());
  std::size_t stride = 1;
  for (std::size_t k = lengths.size(); k-- > 0;) {
    strides[k] = stride;
    stride = times(stride, std::max<std::size_t>(lengths[k], 1));
  }
  return strides;
}

}  // namespace

DType dtype_of(migraphx_shape_datatype_t type) {
  const Type& t = row(type);
  if (!t.supported) fail(ErrorKind::kUnsupported, "tensors of {} are not supported", t.name);
  return t.dtype;
}

migraphx_shape_datatype_t type_of(DType dtype, const std::string& what) {
  for (const Type& t : kTypes)
    if (t.supported && t.dtype == dtype) return t.type;
  fail(ErrorKind::kUnsupported, "{} has elements of {}, which MIGraphX's interface does not know; cast it in the model",
       what, name(dtype));
}

std::string_view name_of(migraphx_shape_datatype_t type) { return row(type).name; }

migraphx_shape_datatype_t parse_type(std::string_view name) {
  for (const Type& t : kTypes) {
    const std::string_view word = t.name.substr(0, t.name.rfind('_'));
    const bool same = name.starts_with(word);
    if (same && (name.size() == word.size() || name.substr(word.size()) == "_type" || name.substr(word.size()) == "_t"))
      return t.type;
  }
  fail(ErrorKind::kInvalidArgument, "{} is no element type", quote(name));
}

void check_type(migraphx_shape_datatype_t type) { row(type); }

migraphx_shape standard_shape(migraphx_shape_datatype_t type, std::span<const std::size_t> lengths) {
  check_type(type);
  migraphx_shape s;
  s.type = type;
  if (lengths.empty()) {
    s.lengths = {1};
    s.strides = {0};
    return s;
  }
  s.lengths.assign(lengths.begin(), lengths.end());
  s.strides = packed_strides(s.lengths);
  times(elements_of(s), element_size(type));
  return s;
}

migraphx_shape shape_of_dims(migraphx_shape_datatype_t type, std::span<const std::int64_t> dims) {
  return standard_shape(type, std::vector<std::size_t>(dims.begin(), dims.end()));
}

std::size_t elements_of(const migraphx_shape& s) {
  require_static(s, "number of elements");
  return std::accumulate(s.lengths.begin(), s.lengths.end(), std::size_t{1}, times);
}

std::size_t element_space(const migraphx_shape& s) {
  if (elements_of(s) == 0) return 0;
  std::size_t last = 0;
  for (std::size_t k = 0; k < s.lengths.size(); ++k) last = plus(last, times(s.lengths[k] - 1, s.strides[k]));
  return plus(last, 1);
}

bool is_standard(const migraphx_shape& s) {
  require_static(s, "strides");
  if (s.is_scalar()) return true;
  const std::vector<std::size_t> packed = packed_strides(s.lengths);
  for (std::size_t k = 0; k < packed.size(); ++k)
    if (s.lengths[k] != 1 && s.strides[k] != packed[k]) return false;
  return true;
}

std::size_t index_of(const migraphx_shape& s, std::size_t i) {
  if (i >= elements_of(s)) fail(ErrorKind::kInvalidArgument, "element {} of a shape with {}", i, elements_of(s));
  std::size_t at = 0;
  for (std::size_t k = s.lengths.size(); k-- > 0;) {
    at += (i % s.lengths[k]) * s.strides[k];
    i /= s.lengths[k];
  }
  return at;
}

std::size_t bytes_of(const migraphx_shape& s) {
  if (!s.is_dynamic()) return times(element_space(s), element_size(s.type));
  std::size_t n = 1;
  for (const migraphx_dynamic_dimension& d : s.dynamic) n = times(n, d.max);
  return times(n, element_size(s.type));
}

std::vector<std::int64_t> dims_of(const migraphx_shape& s) {
  require_static(s, "dims");
  if (s.is_scalar()) return {};
  return {s.lengths.begin(), s.lengths.end()};
}

std::string to_text(const migraphx_shape& s) {
  if (!s.is_dynamic())
    return fmt::format("{}, {{{}}}, {{{}}}", name_of(s.type), fmt::join(s.lengths, ", "), fmt::join(s.strides, ", "));
  std::vector<std::string> dims;
  for (const migraphx_dynamic_dimension& d : s.dynamic)
    dims.push_back(fmt::format("[ {}, {}, {{{}}} ]", d.min, d.max, fmt::join(d.optimals, ", ")));
  return fmt::format("dynamic, {}, {{{}}}", name_of(s.type), fmt::join(dims, ", "));
}

}  // namespace sardonyx::mgx
