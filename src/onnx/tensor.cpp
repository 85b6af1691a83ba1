// See tensor.h. Field rules as in onnx-ml.proto's comments on TensorProto.
#include "onnx/tensor.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "onnx/packing.h"
#include "onnx/text.h"
#include "support/error.h"

namespace sardonyx::onnx {
namespace {

static_assert(std::endian::native == std::endian::little, "ONNX's raw data is little-endian");

// Below this size, the cost of copying to an aligned buffer is negligible.
constexpr std::size_t kSmall = 64 * 1024;

/// The elements of a typed field, narrowed to T (int32_data holds 8- and 16-bit types bit by bit).
template <typename T, typename Field>
Bytes narrowed(const Field& field) {
  std::byte* out = nullptr;
  Bytes bytes = aligned_zeros(static_cast<std::size_t>(field.size()) * sizeof(T), out);
  auto* p = reinterpret_cast<T*>(out);
  for (const auto v : field) *p++ = static_cast<T>(v);
  return bytes;
}

std::uint64_t parse_number(const std::string& text, const std::string& key, const std::string& what) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(ErrorKind::kInvalidModel, "{}: external data's {} is {}, not a number of bytes", what, key, quote(text));
  return value;
}

/// How many entries of all typed fields are set.
std::int64_t typed_entries(const pb::TensorProto& t) {
  return std::int64_t{t.float_data_size()} + t.int32_data_size() + t.int64_data_size() + t.double_data_size() +
         t.uint64_data_size();
}

}  // namespace

std::optional<DType> read_dtype(int data_type, const std::string& what, std::string& unsupported) {
  switch (data_type) {
    case pb::TensorProto::UNDEFINED:
      fail(ErrorKind::kInvalidModel, "{} has no element type", what);
    case pb::TensorProto::STRING:
      unsupported = "string tensors are not supported; keep text processing outside the model";
      return std::nullopt;
    default:
      break;
  }
  if (!pb::TensorProto::DataType_IsValid(data_type))
    fail(ErrorKind::kInvalidModel, "{} has the unknown element type {}", what, data_type);
  const std::span<const DTypeInfo> rows = all_dtypes();
  if (std::none_of(rows.begin(), rows.end(), [&](const DTypeInfo& r) { return r.onnx == data_type; })) {
    unsupported = fmt::format("{} tensors are not supported; convert them to float8 or float16",
                              pb::TensorProto::DataType_Name(data_type));
    return std::nullopt;
  }
  return from_onnx(data_type);
}

std::int64_t checked_elements(const std::vector<std::int64_t>& dims, const std::string& what) {
  if (dims.size() > kMaxRank)
    fail(ErrorKind::kInvalidModel, "{} has rank {}; at most {} is accepted", what, dims.size(), kMaxRank);
  constexpr std::int64_t kMaxElements = INT64_MAX / 16;
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t d : dims) {
    if (d < 0) fail(ErrorKind::kInvalidModel, "{} has the negative dimension {}", what, d);
    if (d == 0) {
      empty = true;
    } else {
      if (product > kMaxElements / d) fail(ErrorKind::kInvalidModel, "{} has dimensions whose product overflows", what);
      product *= d;
    }
  }
  return empty ? 0 : product;
}

Tensor TensorReader::read(pb::TensorProto& proto, const std::string& what) {
  if (const auto found = done_.find(&proto); found != done_.end()) return found->second;
  return done_[&proto] = convert(proto, what);
}

Tensor TensorReader::read(pb::SparseTensorProto& proto, const std::string& what) {
  if (const auto found = done_.find(&proto); found != done_.end()) return found->second;
  return done_[&proto] = densify(proto, what);
}

Tensor TensorReader::convert(pb::TensorProto& proto, const std::string& what) {
  Tensor t;
  t.name = checked(proto.name(), "a tensor's name");
  t.dims.assign(proto.dims().begin(), proto.dims().end());
  const std::int64_t elements = checked_elements(t.dims, what);
  if (proto.has_segment())
    fail(ErrorKind::kUnsupported, "{} is stored in segments; save the model with whole tensors", what);
  const std::optional<DType> dtype = read_dtype(proto.data_type(), what, t.unsupported);
  if (!dtype) return t;
  t.dtype = *dtype;
  bool missing = false;
  Bytes bytes = stored(proto, t.dtype, elements, what, missing);
  if (missing) {
    if (!options_.allow_missing_weights)
      fail(ErrorKind::kInvalidModel,
           "{} has no data for its {} elements: its weights were stripped or its external data was lost", what,
           elements);
    t.unsupported = "the model was loaded without its weights";
    return t;
  }
  t.owner = std::move(bytes.owner);
  t.data = bytes.data;
  t.bytes = bytes.size;
  return t;
}

Bytes TensorReader::stored(pb::TensorProto& proto, DType dtype, std::int64_t elements, const std::string& what,
                           bool& missing) {
  const auto count = static_cast<std::uint64_t>(elements);
  if (proto.data_location() == pb::TensorProto::EXTERNAL) {
    std::map<std::string, std::string> keys;
    for (const pb::StringStringEntryProto& e : proto.external_data())
      if (!keys.emplace(e.key(), e.value()).second)
        fail(ErrorKind::kInvalidModel, "{} gives external data's {} twice", what, quote(e.key()));
    const std::uint64_t offset = keys.contains("offset") ? parse_number(keys["offset"], "offset", what) : 0;
    if (keys.contains("length") && parse_number(keys["length"], "length", what) != packed_size(dtype, count))
      fail(ErrorKind::kInvalidModel, "{} has {} elements of {}, {} bytes, but {} bytes of external data", what,
           elements, name(dtype), packed_size(dtype, count), keys["length"]);
    return files_.read(keys["location"], offset, dtype, count, what);
  }

  const std::int64_t typed = typed_entries(proto);
  const auto outside = raw_.find(&proto);
  if (outside != raw_.end() || !proto.raw_data().empty()) {
    if (typed != 0) fail(ErrorKind::kInvalidModel, "{} has both raw data and typed data", what);
    const std::string_view raw =
        outside == raw_.end()
            ? std::string_view(proto.raw_data())
            : std::string_view(reinterpret_cast<const char*>(outside->second.data), outside->second.size);
    if (raw.size() != packed_size(dtype, count))
      fail(ErrorKind::kInvalidModel, "{} has {} elements of {}, {} bytes, but {} bytes of data", what, elements,
           name(dtype), packed_size(dtype, count), raw.size());
    const bool as_is = !is_packed(dtype) && dtype != DType::kBool && is_aligned(raw.data(), raw.size());
    if (!as_is || raw.size() <= kSmall) return converted_copy(raw.data(), dtype, count);
    if (outside != raw_.end()) return outside->second;
    const std::shared_ptr<const std::string> owner(proto.release_raw_data());
    return {owner, reinterpret_cast<const std::byte*>(owner->data()), owner->size()};
  }
  if (typed == 0) {
    missing = elements != 0;
    return missing ? Bytes{} : converted_copy(nullptr, dtype, 0);
  }

  std::int64_t found = 0, expected = elements;
  switch (dtype) {
    case DType::kFloat32:
      found = proto.float_data_size();
      break;
    case DType::kComplex64:
      found = proto.float_data_size(), expected = 2 * elements;
      break;
    case DType::kFloat64:
      found = proto.double_data_size();
      break;
    case DType::kComplex128:
      found = proto.double_data_size(), expected = 2 * elements;
      break;
    case DType::kInt64:
      found = proto.int64_data_size();
      break;
    case DType::kUInt32:
    case DType::kUInt64:
      found = proto.uint64_data_size();
      break;
    default:
      found = proto.int32_data_size(),
      expected = is_packed(dtype) ? static_cast<std::int64_t>(packed_size(dtype, count)) : elements;
  }
  if (found != typed)
    fail(ErrorKind::kInvalidModel, "{} keeps {} elements in a field of another type", what, name(dtype));
  if (found != expected)
    fail(ErrorKind::kInvalidModel, "{} has {} elements of {} but {} entries of data where {} are needed", what,
         elements, name(dtype), found, expected);
  switch (dtype) {
    case DType::kFloat32:
    case DType::kComplex64:
      return narrowed<float>(proto.float_data());
    case DType::kFloat64:
    case DType::kComplex128:
      return narrowed<double>(proto.double_data());
    case DType::kInt64:
      return narrowed<std::int64_t>(proto.int64_data());
    case DType::kUInt32:
      return narrowed<std::uint32_t>(proto.uint64_data());
    case DType::kUInt64:
      return narrowed<std::uint64_t>(proto.uint64_data());
    case DType::kBool:
      return narrowed<bool>(proto.int32_data());
    default:
      break;
  }
  if (is_packed(dtype)) return converted_copy(narrowed<std::uint8_t>(proto.int32_data()).data, dtype, count);
  switch (size_of(dtype)) {
    case 1:
      return narrowed<std::uint8_t>(proto.int32_data());
    case 2:
      return narrowed<std::uint16_t>(proto.int32_data());
    default:
      return narrowed<std::int32_t>(proto.int32_data());
  }
}

Tensor TensorReader::densify(pb::SparseTensorProto& proto, const std::string& what) {
  const Tensor values = convert(*proto.mutable_values(), "the values of " + what);
  Tensor t;
  t.name = values.name;
  t.dtype = values.dtype;
  t.unsupported = values.unsupported;
  t.dims.assign(proto.dims().begin(), proto.dims().end());
  const std::int64_t elements = checked_elements(t.dims, what);
  const Tensor indices = convert(*proto.mutable_indices(), "the indices of " + what);
  const std::int64_t count = values.elements(), rank = static_cast<std::int64_t>(t.dims.size());
  const bool linear = indices.dims == std::vector<std::int64_t>{count};
  if (values.dims.size() != 1 || indices.dtype != DType::kInt64 ||
      (!linear && indices.dims != std::vector<std::int64_t>{count, rank}))
    fail(ErrorKind::kInvalidModel, "{} needs values of shape [n] and int64 indices of shape [n] or [n, rank]", what);
  if (!t.unsupported.empty()) return t;
  if (!indices.unsupported.empty()) {
    t.unsupported = indices.unsupported;
    return t;
  }
  const std::size_t size = size_of(t.dtype);
  if (static_cast<std::uint64_t>(elements) * size > kMaxDensifiedBytes - densified_)
    fail(ErrorKind::kUnsupported,
         "{} is sparse; its {} elements bring the model over the {} MiB that sparse tensors may take as dense ones: "
         "store it dense",
         what, elements, kMaxDensifiedBytes >> 20);
  densified_ += static_cast<std::uint64_t>(elements) * size;

  std::byte* out = nullptr;
  Bytes bytes = aligned_zeros(static_cast<std::size_t>(elements) * size, out);
  const std::span<const std::int64_t> index = indices.as<std::int64_t>();
  std::int64_t last = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t at = 0;
    bool inside = true;
    if (linear) {
      at = index[i];
      inside = at >= 0 && at < elements;
    } else {
      for (std::int64_t k = 0; k < rank && inside; ++k) {
        const std::int64_t j = index[i * rank + k];
        inside = j >= 0 && j < t.dims[k];
        if (inside) at = at * t.dims[k] + j;
      }
      inside = inside && at < elements;
    }
    if (!inside) fail(ErrorKind::kInvalidModel, "{} has an index outside its shape, at entry {}", what, i);
    if (at <= last) fail(ErrorKind::kInvalidModel, "{} has indices that do not ascend, at entry {}", what, i);
    last = at;
    std::memcpy(out + static_cast<std::size_t>(at) * size, values.data + static_cast<std::size_t>(i) * size, size);
  }
  t.owner = std::move(bytes.owner);
  t.data = bytes.data;
  t.bytes = bytes.size;
  return t;
}

Tensor parse_tensor(std::span<const std::byte> bytes) {
  pb::TensorProto proto;
  if (bytes.size() > INT32_MAX || !proto.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size())))
    fail(ErrorKind::kInvalidModel, "not a serialised ONNX tensor (a TensorProto)");
  return TensorReader(ExternalFiles(), {}).read(proto, "tensor " + quote(proto.name()));
}

void write_tensor(pb::TensorProto& proto, std::string_view tensor_name, DType dtype, std::span<const std::int64_t> dims,
                  std::span<const std::byte> data) {
  const std::string what = "tensor " + quote(tensor_name);
  const auto elements = static_cast<std::size_t>(checked_elements({dims.begin(), dims.end()}, what));
  if (data.size() != elements * size_of(dtype))
    fail(ErrorKind::kInvalidArgument, "{} has {} elements of {} but {} bytes", what, elements, name(dtype),
         data.size());
  if (data.size() > std::size_t{INT32_MAX} - (1 << 20))
    fail(ErrorKind::kUnsupported, "{} has {} bytes; a serialised tensor holds less than 2 GiB", what, data.size());
  proto.set_name(std::string(tensor_name));
  proto.set_data_type(to_onnx(dtype));
  for (const std::int64_t d : dims) proto.add_dims(d);
  std::string& raw = *proto.mutable_raw_data();
  raw.resize(packed_size(dtype, elements));
  if (is_packed(dtype))
    pack(dtype, data.data(), elements, reinterpret_cast<std::byte*>(raw.data()));
  else if (!raw.empty())
    std::memcpy(raw.data(), data.data(), raw.size());
}

std::string serialize_tensor(std::string_view tensor_name, DType dtype, std::span<const std::int64_t> dims,
                             std::span<const std::byte> data) {
  pb::TensorProto proto;
  write_tensor(proto, tensor_name, dtype, dims, data);
  return proto.SerializeAsString();
}

}  // namespace sardonyx::onnx
