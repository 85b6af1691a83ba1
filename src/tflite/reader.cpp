#include "tflite/reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/bytes.h"
#include "support/text.h"

namespace sardonyx::tflite {
namespace {

constexpr std::size_t kMaxName = 200;  ///< of values and nodes
constexpr std::size_t kMaxRank = 16;
/// Fewer bytes than any operator or tensor takes in a file: bounds lists whose entries share their bytes.
constexpr std::size_t kLeastBytes = 16;

/// Printable UTF-8 without NUL, which model/ demands of names.
std::string clean(std::string text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t n = utf8_length(text, i);
    if (n == 0 || text[i] == '\0')
      out += '?';
    else
      out.append(text, i, n);
    i += std::max<std::size_t>(n, 1);
  }
  return out;
}

/// The element type; a reason if there is none here.
DType dtype_of(Type type, std::string& unsupported) {
  switch (type) {
    case Type::kFloat32:
      return DType::kFloat32;
    case Type::kFloat16:
      return DType::kFloat16;
    case Type::kInt32:
      return DType::kInt32;
    case Type::kUInt8:
      return DType::kUInt8;
    case Type::kInt64:
      return DType::kInt64;
    case Type::kBool:
      return DType::kBool;
    case Type::kInt16:
      return DType::kInt16;
    case Type::kInt4:  // one element per byte: the operators are those of 8 bits
    case Type::kInt8:
      return DType::kInt8;
    case Type::kFloat64:
      return DType::kFloat64;
    case Type::kUInt64:
      return DType::kUInt64;
    case Type::kUInt32:
      return DType::kUInt32;
    case Type::kUInt16:
      return DType::kUInt16;
    case Type::kBFloat16:
      return DType::kBFloat16;
    case Type::kString:
      unsupported = "its elements are strings, which are no numbers";
      break;
    case Type::kResource:
    case Type::kVariant:
      unsupported = "it is a resource (a variable or a table), not a tensor";
      break;
    default:
      unsupported = fmt::format("its element type has the number {}", static_cast<int>(type));
  }
  return DType::kFloat32;
}

}  // namespace

Reader::Reader(std::span<const std::byte> bytes, std::shared_ptr<const void> owner)
    : bytes_(bytes),
      owner_(std::move(owner)),
      root_(Table::root(bytes_)),
      buffers_(root_.tables(field::kBuffers)),
      codes_(root_.tables(field::kOperatorCodes)),
      budget_(bytes.size() / 8 + 4096) {
  const auto version = root_.get<std::uint32_t>(field::kVersion, 0);
  if (version != 3) fail(ErrorKind::kUnsupported, "version {} of the TFLite format; only 3 is known", version);
  const Tables graphs = root_.tables(field::kSubgraphs);
  if (graphs.size() == 0) fail(ErrorKind::kInvalidModel, "the model has no graph");
  if (graphs.size() > bytes.size() / kLeastBytes) fail(ErrorKind::kInvalidModel, "malformed: {} graphs", graphs.size());
  for (std::size_t k = 0; k < graphs.size(); ++k) subgraphs_.push_back(read_subgraph(graphs[k]));
  read_signature();
}

void Reader::charge(std::size_t items) {
  const std::size_t cost = 1 + items / 4;
  if (budget_ < cost)
    fail(ErrorKind::kUnsupported,
         "calls of subgraphs, or lists that share their bytes, make more of the file than its {} bytes can hold",
         bytes_.size());
  budget_ -= cost;
}

std::vector<std::int32_t> Reader::indices(const Numbers<std::int32_t>& from, std::size_t tensors, const char* what) {
  listed_ += from.size();
  if (listed_ > bytes_.size()) fail(ErrorKind::kInvalidModel, "malformed: lists of tensors share their bytes");
  std::vector<std::int32_t> out(from.size());
  for (std::size_t k = 0; k < out.size(); ++k) {
    out[k] = from[k];
    if (out[k] < -1 || (out[k] >= 0 && static_cast<std::size_t>(out[k]) >= tensors))
      fail(ErrorKind::kInvalidModel, "malformed: {} refers to tensor {} of {}", what, out[k], tensors);
  }
  return out;
}

SubgraphInfo Reader::read_subgraph(const Table& table) {
  SubgraphInfo out;
  out.name = clean(table.text(field::kSubgraphName, kMaxName));
  const Tables tensors = table.tables(field::kTensors), operators = table.tables(field::kOperators);
  listed_ += (tensors.size() + operators.size()) * kLeastBytes;
  if (listed_ > bytes_.size())
    fail(ErrorKind::kInvalidModel, "malformed: {} tensors and {} operators in {} bytes", tensors.size(),
         operators.size(), bytes_.size());
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    out.tensors.push_back(read_tensor(tensors[k]));
    if (out.tensors.back().name.empty()) out.tensors.back().name = fmt::format("tensor_{}", k);
  }
  out.inputs = indices(table.numbers<std::int32_t>(field::kInputs), tensors.size(), "the list of inputs");
  out.outputs = indices(table.numbers<std::int32_t>(field::kOutputs), tensors.size(), "the list of outputs");
  for (const auto* list : {&out.inputs, &out.outputs})
    for (const std::int32_t k : *list)
      if (k < 0)
        fail(ErrorKind::kInvalidModel, "malformed: an input or output of graph {} is not a tensor", quote(out.name));
  for (std::size_t k = 0; k < operators.size(); ++k)
    out.operators.push_back(read_operator(operators[k], tensors.size()));
  return out;
}

TensorInfo Reader::read_tensor(const Table& table) {
  TensorInfo out;
  out.name = clean(table.text(field::kTensorName, kMaxName));
  const auto type = static_cast<Type>(table.get<std::int8_t>(field::kType, 0));
  out.dtype = dtype_of(type, out.unsupported);
  out.variable = table.get<bool>(field::kIsVariable, false);
  auto shape = table.numbers<std::int32_t>(field::kShapeSignature);
  if (shape.size() == 0) shape = table.numbers<std::int32_t>(field::kShape);
  if (shape.size() > kMaxRank) fail(ErrorKind::kInvalidModel, "tensor {} has {} dims", quote(out.name), shape.size());
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] < -1) fail(ErrorKind::kInvalidModel, "tensor {} has a dim of size {}", quote(out.name), shape[k]);
    out.shape.push_back(shape[k]);
  }
  if (const auto q = table.table(field::kQuantization)) {
    const auto scale = q->numbers<float>(field::kScale);
    const auto zero = q->numbers<std::int64_t>(field::kZeroPoint);
    listed_ += scale.size();
    if (listed_ > bytes_.size()) fail(ErrorKind::kInvalidModel, "malformed: scales share their bytes");
    if (q->get<std::uint8_t>(field::kDetailsType, 0) != 0) out.unsupported = "it has a quantisation of its own kind";
    for (std::size_t k = 0; k < scale.size(); ++k) {
      if (!std::isfinite(scale[k]) || scale[k] < 0)
        fail(ErrorKind::kInvalidModel, "tensor {} has the scale {}", quote(out.name), scale[k]);
      out.quantization.scale.push_back(scale[k]);
      out.quantization.zero.push_back(zero.size() == 0 ? 0 : zero[std::min(k, zero.size() - 1)]);
    }
    out.quantization.axis = q->get<std::int32_t>(field::kAxis, 0);
    const std::size_t n = scale.size(), axis = static_cast<std::size_t>(out.quantization.axis);
    if (n > 1 && (axis >= out.shape.size() || out.shape[axis] != static_cast<std::int64_t>(n)))
      fail(ErrorKind::kInvalidModel, "tensor {} has {} scales for dim {} of [{}]", quote(out.name), n,
           out.quantization.axis, fmt::join(out.shape, ", "));
  }
  if (table.table(field::kSparsity)) out.unsupported = "it is sparse";
  if (table.get<std::uint32_t>(field::kExternalBuffer, 0) != 0) out.unsupported = "its data is in another file";
  read_data(table, type, out);
  return out;
}

std::span<const std::byte> Reader::buffer(std::uint32_t index) const {
  if (index >= buffers_.size())
    fail(ErrorKind::kInvalidModel, "malformed: there is no buffer {}; there are {}", index, buffers_.size());
  const Table table = buffers_[index];
  const auto offset = table.get<std::uint64_t>(field::kOffset, 0), size = table.get<std::uint64_t>(field::kSize, 0);
  if (offset > 1) return bytes_.range(offset, size);  // of files above 2 GiB: after the flatbuffer
  return table.numbers<std::byte>(field::kData).bytes();
}

void Reader::read_data(const Table& table, Type type, TensorInfo& out) {
  const auto index = table.get<std::uint32_t>(field::kBuffer, 0);
  if (index == 0) return;  // the empty buffer
  const std::span<const std::byte> data = buffer(index);
  const bool none = std::find(out.shape.begin(), out.shape.end(), 0) != out.shape.end();
  if ((data.empty() && !none) || !out.unsupported.empty()) return;  // the operators compute it
  model::Tensor t;
  t.name = out.name;
  t.dtype = out.dtype;
  t.dims = out.shape;
  std::int64_t elements = 1;
  for (const std::int64_t d : out.shape)
    if (d < 0 || __builtin_mul_overflow(elements, d, &elements))
      fail(ErrorKind::kInvalidModel, "constant {} has the shape [{}]", quote(out.name), fmt::join(out.shape, ", "));
  const bool packed = type == Type::kInt4;
  const auto count = static_cast<std::uint64_t>(elements);
  std::uint64_t want = count / 2 + count % 2;
  if (!packed && __builtin_mul_overflow(count, size_of(out.dtype), &want)) want = UINT64_MAX;
  if (want != data.size())
    fail(ErrorKind::kInvalidModel, "constant {} of {} [{}] has {} bytes", quote(out.name), name(out.dtype),
         fmt::join(out.shape, ", "), data.size());
  if (type == Type::kBool)
    for (const std::byte b : data)
      if (b > std::byte{1}) fail(ErrorKind::kInvalidModel, "constant {} is no bool", quote(out.name));
  const bool aligned = !data.empty() && reinterpret_cast<std::uintptr_t>(data.data()) % 16 == 0;
  t.bytes = packed ? count : data.size();
  if (aligned && !packed) {
    t.owner = owner_;
    t.data = data.data();
  } else {
    model::Tensor& copy = copies_[std::uint64_t{index} * 2 + (packed ? 1 : 0)];
    if (copy.data == nullptr || copy.bytes != t.bytes) {
      std::byte* bytes = nullptr;
      const model::Bytes block = model::aligned_zeros(t.bytes, bytes);
      if (packed)
        for (std::size_t k = 0; k < t.bytes; ++k) {
          const auto nibble = static_cast<std::uint8_t>((static_cast<std::uint8_t>(data[k / 2]) >> (k % 2 * 4)) & 15);
          bytes[k] = static_cast<std::byte>(nibble > 7 ? nibble - 16 : nibble);
        }
      else if (!data.empty())
        std::memcpy(bytes, data.data(), data.size());
      copy.owner = block.owner;
      copy.data = block.data;
      copy.bytes = t.bytes;
    }
    t.owner = copy.owner;
    t.data = copy.data;
  }
  out.constant = std::move(t);
}

OperatorInfo Reader::read_operator(const Table& table, std::size_t tensors) {
  OperatorInfo out;
  const auto index = table.get<std::uint32_t>(field::kOpcode, 0);
  if (index >= codes_.size())
    fail(ErrorKind::kInvalidModel, "malformed: there is no operator code {}; there are {}", index, codes_.size());
  const Table code = codes_[index];
  out.code = std::max<std::int32_t>(code.get<std::int8_t>(field::kOldCode, 0), code.get<std::int32_t>(field::kCode, 0));
  if (out.code == kCustomOperator) out.custom = clean(code.text(field::kCustomCode, kMaxName));
  out.inputs = indices(table.numbers<std::int32_t>(field::kOpInputs), tensors, "an operator");
  out.outputs = indices(table.numbers<std::int32_t>(field::kOpOutputs), tensors, "an operator");
  for (const std::int32_t k : out.outputs)
    if (k < 0) fail(ErrorKind::kInvalidModel, "malformed: an operator's output is not a tensor");
  if (table.get<std::uint8_t>(field::kOptionsType, 0) != 0) out.options = table.table(field::kOptions);
  return out;
}

void Reader::read_signature() {
  const Tables signatures = root_.tables(field::kSignatures);
  for (std::size_t k = 0; k < signatures.size() && k < 1000; ++k) {
    const Table s = signatures[k];
    if (s.get<std::uint32_t>(field::kSignatureSubgraph, 0) != 0) continue;
    const auto read = [&](int list, std::vector<NamedTensor>& out) {
      const Tables maps = s.tables(list);
      listed_ += maps.size() * kLeastBytes;
      if (listed_ > bytes_.size()) fail(ErrorKind::kInvalidModel, "malformed: signatures share their bytes");
      for (std::size_t m = 0; m < maps.size(); ++m)
        out.push_back({clean(maps[m].text(field::kMapName, kMaxName)),
                       std::int64_t{maps[m].get<std::uint32_t>(field::kMapTensor, 0)}});
    };
    read(field::kSignatureInputs, named_inputs_);
    read(field::kSignatureOutputs, named_outputs_);
    return;
  }
}

}  // namespace sardonyx::tflite
