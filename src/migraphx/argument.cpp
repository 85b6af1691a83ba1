#include "migraphx/argument.h"

#include <cmath>
#include <cstring>

#include "migraphx/files.h"
#include "migraphx/shape.h"
#include "onnx/load.h"
#include "support/dtype.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

/// G. Marsaglia's generator xorshf96 with the state that MIGraphX starts with.
class Random {
 public:
  explicit Random(std::uint64_t seed) : z_(521288629U ^ seed) {}
  std::uint64_t next() {
    x_ ^= x_ << 16;
    x_ ^= x_ >> 5;
    x_ ^= x_ << 1;
    const std::uint64_t t = x_;
    x_ = y_;
    y_ = z_;
    z_ = t ^ x_ ^ y_;
    return z_;
  }

 private:
  std::uint64_t x_ = 123456789, y_ = 362436069, z_;
};

/// The code of a number that is normal, or 0, in this format; ties to even.
std::uint16_t encode(const FloatFormat& f, double v) {
  if (v == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(v), &exponent);  // in [0.5, 1)
  const int ones = 1 << f.mantissa_bits;
  // A mantissa that rounds up to 2 carries into the exponent.
  const int code =
      ((exponent - 1 + f.bias) << f.mantissa_bits) + static_cast<int>(std::nearbyint((2 * fraction - 1) * ones));
  return static_cast<std::uint16_t>(code | (v < 0 ? 1 << (f.exponent_bits + f.mantissa_bits) : 0));
}

template <typename T>
void store(std::byte* to, T v) {
  std::memcpy(to, &v, sizeof(v));
}

/// One random element, of MIGraphX's ranges: integers of n bytes have 5n random bits.
void put(std::byte* to, DType t, std::uint64_t random) {
  const std::size_t size = size_of(t);
  if (t == DType::kBool) return store(to, static_cast<std::uint8_t>(random % 2));
  if (is_float(t)) {
    const double v = -1 + static_cast<double>(random % 32) / 16;
    if (t == DType::kFloat64) return store(to, v);
    if (t == DType::kFloat32) return store(to, static_cast<float>(v));
    const std::uint16_t code = encode(*float_format(t), v);
    std::memcpy(to, &code, size);
    return;
  }
  const std::uint64_t range = std::uint64_t{1} << (size * 5);
  const std::uint64_t v = is_signed(t) ? range / 2 - random % range : random % range;
  std::memcpy(to, &v, size);
}

template <typename T>
bool same_floats(const T* a, const T* b, std::int64_t n) {
  for (std::int64_t k = 0; k < n; ++k)
    if (!(a[k] == b[k] || std::nextafter(a[k], b[k]) == b[k])) return false;
  return true;
}

std::byte* bytes(const migraphx_argument& a) { return static_cast<std::byte*>(a.data); }

void require_host(const migraphx_argument& a) {
  if (a.on_device)
    fail(ErrorKind::kUnsupported,
         "the argument is in device memory; copy it to the host, or compile with offload_copy");
  if (a.data == nullptr && elements_of(a.shape) > 0) fail(ErrorKind::kInvalidArgument, "the argument has no data");
}

}  // namespace

migraphx_argument zeros(const migraphx_shape& shape) {
  if (shape.is_dynamic()) fail(ErrorKind::kInvalidArgument, "an argument needs a shape that is not dynamic");
  dtype_of(shape.type);
  migraphx_argument a;
  a.shape = shape;
  const std::size_t size = bytes_of(shape);
  a.owner = Tensor::allocate(DType::kUInt8, {static_cast<std::int64_t>(size)}).owner;
  a.data = a.owner.get();
  if (size > 0) std::memset(a.data, 0, size);
  return a;
}

migraphx_argument generate(const migraphx_shape& shape, std::uint64_t seed) {
  migraphx_argument a = zeros(shape);
  const DType t = dtype_of(shape.type);
  Random random(seed);
  const std::size_t n = element_space(shape);
  for (std::size_t k = 0; k < n; ++k) put(bytes(a) + k * size_of(t), t, random.next());
  return a;
}

Tensor packed(const migraphx_argument& a, const std::string& what) {
  const DType t = dtype_of(a.shape.type);
  const std::vector<std::int64_t> dims = dims_of(a.shape);
  const std::size_t n = elements_of(a.shape);
  if (a.data == nullptr && n > 0) fail(ErrorKind::kInvalidArgument, "{} has no data", what);
  if (is_standard(a.shape)) return Tensor::borrow(t, dims, a.data);
  Tensor out = Tensor::allocate(t, dims);
  const std::size_t size = size_of(t);
  for (std::size_t k = 0; k < n; ++k)
    std::memcpy(static_cast<std::byte*>(out.data) + k * size, bytes(a) + index_of(a.shape, k) * size, size);
  return out;
}

bool equal(const migraphx_argument& a, const migraphx_argument& b) {
  if (!(a.shape == b.shape)) return false;
  require_host(a);
  require_host(b);
  const Tensor x = packed(a, "the argument"), y = packed(b, "the argument");
  if (x.dtype == DType::kFloat32)
    return same_floats(static_cast<const float*>(x.data), static_cast<const float*>(y.data), x.elements());
  if (x.dtype == DType::kFloat64)
    return same_floats(static_cast<const double*>(x.data), static_cast<const double*>(y.data), x.elements());
  return x.bytes() == 0 || std::memcmp(x.data, y.data, x.bytes()) == 0;
}

void save(const migraphx_argument& a, const std::filesystem::path& path) {
  require_host(a);
  const Tensor t = packed(a, "the argument");
  write_file(path, onnx::serialize_tensor("", t.dtype, t.dims, {static_cast<const std::byte*>(t.data), t.bytes()}));
}

migraphx_argument load_argument(const std::filesystem::path& path) {
  const std::string file = read_file(path);
  model::Tensor t;
  try {
    t = onnx::parse_tensor({reinterpret_cast<const std::byte*>(file.data()), file.size()});
  } catch (const Error& e) {
    fail(e.kind(),
         "{}: {}; arguments are stored as ONNX tensors (TensorProto) here, MIGraphX's own files can't be read",
         path.string(), e.what());
  }
  t.require();
  migraphx_argument a = zeros(shape_of_dims(type_of(t.dtype, path.string()), t.dims));
  if (t.bytes > 0) std::memcpy(a.data, t.data, t.bytes);
  return a;
}

}  // namespace sardonyx::mgx
