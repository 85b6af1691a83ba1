// Tensors: typed and raw fields, sub-byte packing, sparse tensors, bounds, serialisation.
#include <cstring>

#include "build_model.h"

namespace sardonyx::onnx {
namespace {

using testing::ElementsAre;
using TP = pb::TensorProto;

pb::TensorProto tensor(int type, const std::vector<std::int64_t>& dims) {
  pb::TensorProto t;
  t.set_name("t");
  t.set_data_type(type);
  for (const std::int64_t d : dims) t.add_dims(d);
  return t;
}

Tensor read(const pb::TensorProto& t) { return parse_tensor(bytes_of(t.SerializeAsString())); }

std::vector<int> as_ints(const Tensor& t) {
  std::vector<int> out;
  for (const std::int8_t v : t.as<std::int8_t>()) out.push_back(v);
  return out;
}

TEST(Tensor, RawData) {
  pb::TensorProto t = tensor(TP::INT16, {2, 2});
  t.set_raw_data(std::string("\x01\x00\xff\xff\x00\x80\x02\x01", 8));
  const Tensor got = read(t);
  EXPECT_EQ(got.name, "t");
  EXPECT_EQ(got.dtype, DType::kInt16);
  EXPECT_THAT(got.dims, ElementsAre(2, 2));
  EXPECT_THAT(got.as<std::int16_t>(), ElementsAre(1, -1, -32768, 258));
}

TEST(Tensor, LargeRawDataOutlivesTheFile) {
  pb::TensorProto t = tensor(TP::INT32, {1 << 20});
  std::string raw(4 << 20, '\0');
  for (int i = 0; i < 1 << 20; ++i) std::memcpy(&raw[4 * static_cast<std::size_t>(i)], &i, 4);
  t.set_raw_data(raw);
  Tensor copy;
  {
    const Tensor got = read(t);
    copy = got;
    EXPECT_EQ(copy.data, got.data);
  }
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(copy.data) % 16, 0u);
  EXPECT_EQ(copy.as<std::int32_t>()[(1 << 20) - 1], (1 << 20) - 1);
}

TEST(Tensor, SmallTensorsAreAlignedTo64) {
  pb::TensorProto t = tensor(TP::UINT8, {3});
  t.set_raw_data("abc");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read(t).data) % 64, 0u);
}

TEST(Tensor, Int32DataHoldsNarrowTypesBitByBit) {
  pb::TensorProto t = tensor(TP::FLOAT16, {2});
  t.add_int32_data(0x3c00), t.add_int32_data(0xc000);
  EXPECT_THAT(read(t).as<std::uint16_t>(), ElementsAre(0x3c00, 0xc000));
  t = tensor(TP::INT8, {2});
  t.add_int32_data(-3), t.add_int32_data(127);
  EXPECT_THAT(as_ints(read(t)), ElementsAre(-3, 127));
  t = tensor(TP::FLOAT8E4M3FN, {1});
  t.add_int32_data(0xfe);
  EXPECT_THAT(read(t).as<std::uint8_t>(), ElementsAre(0xfe));
}

TEST(Tensor, BoolBecomesZeroOrOne) {
  pb::TensorProto t = tensor(TP::BOOL, {3});
  t.add_int32_data(0), t.add_int32_data(256), t.add_int32_data(1);
  EXPECT_THAT(as_ints(read(t)), ElementsAre(0, 1, 1));
  t = tensor(TP::BOOL, {3});
  t.set_raw_data(std::string("\x00\x02\xff", 3));
  EXPECT_THAT(as_ints(read(t)), ElementsAre(0, 1, 1));
}

TEST(Tensor, SubByteTypesUnpackLowBitsFirst) {
  for (const bool raw : {false, true}) {
    const auto make = [&](int type, std::int64_t n, const std::vector<int>& bytes) {
      pb::TensorProto t = tensor(type, {n});
      std::string data;
      for (const int b : bytes) {
        if (raw) data += static_cast<char>(b);
        if (!raw) t.add_int32_data(b);
      }
      if (raw) t.set_raw_data(data);
      return as_ints(read(t));
    };
    EXPECT_THAT(make(TP::INT4, 3, {0x87, 0x0f}), ElementsAre(7, -8, -1));
    EXPECT_THAT(make(TP::UINT4, 3, {0x87, 0x0f}), ElementsAre(7, 8, 15));
    EXPECT_THAT(make(TP::FLOAT4E2M1, 2, {0x9f}), ElementsAre(15, 9));
    EXPECT_THAT(make(TP::INT2, 5, {0b11100100, 0b10}), ElementsAre(0, 1, -2, -1, -2));
    EXPECT_THAT(make(TP::UINT2, 5, {0b11100100, 0b10}), ElementsAre(0, 1, 2, 3, 2));
  }
}

TEST(Tensor, ComplexAndUnsigned) {
  pb::TensorProto t = tensor(TP::COMPLEX64, {1});
  t.add_float_data(1), t.add_float_data(2);
  EXPECT_EQ(read(t).bytes, 8u);
  t = tensor(TP::COMPLEX128, {1});
  t.add_double_data(1), t.add_double_data(2);
  EXPECT_EQ(read(t).bytes, 16u);
  t = tensor(TP::UINT32, {1});
  t.add_uint64_data(0xffffffffu);
  EXPECT_THAT(read(t).as<std::uint32_t>(), ElementsAre(0xffffffffu));
}

TEST(Tensor, EmptyAndScalar) {
  const Tensor empty = read(tensor(TP::FLOAT, {0, 5}));
  EXPECT_EQ(empty.elements(), 0);
  EXPECT_TRUE(empty.as<float>().empty());
  pb::TensorProto t = tensor(TP::DOUBLE, {});
  t.add_double_data(2.5);
  EXPECT_THAT(read(t).as<double>(), ElementsAre(2.5));
}

TEST(Tensor, Malformed) {
  const auto refuse = [](const pb::TensorProto& t, const std::vector<std::string>& parts) {
    expect_error(ErrorKind::kInvalidModel, parts, [&] { read(t); });
  };
  refuse(tensor(TP::FLOAT, {2, -1}), {"'t'", "negative dimension -1"});
  refuse(tensor(TP::FLOAT, {std::int64_t{1} << 40, std::int64_t{1} << 40}), {"'t'", "overflows"});
  refuse(tensor(TP::FLOAT, {0, std::int64_t{1} << 40, std::int64_t{1} << 40}), {"overflows"});
  refuse(tensor(TP::FLOAT, {std::int64_t{1} << 58}), {"no data"});
  refuse(tensor(TP::FLOAT, std::vector<std::int64_t>(65, 1)), {"rank 65"});
  refuse(tensor(TP::UNDEFINED, {1}), {"no element type"});
  refuse(tensor(29, {1}), {"unknown element type 29"});
  refuse(tensor(-1, {1}), {"unknown element type -1"});
  pb::TensorProto t = tensor(TP::FLOAT, {3});
  t.set_raw_data("12345678901");
  refuse(t, {"3 elements of float32", "12 bytes", "11 bytes"});
  t = tensor(TP::INT4, {3});
  t.set_raw_data("123");
  refuse(t, {"int4", "2 bytes", "3 bytes"});
  t = tensor(TP::FLOAT, {3});
  t.add_float_data(1);
  refuse(t, {"3 elements", "1 entries"});
  t = tensor(TP::FLOAT, {1});
  t.add_int32_data(1);
  refuse(t, {"float32", "another type"});
  t.add_float_data(1);
  refuse(t, {"another type"});
  t = tensor(TP::FLOAT, {1});
  t.add_float_data(1), t.set_raw_data("1234");
  refuse(t, {"both"});
  t = tensor(TP::COMPLEX64, {2});
  t.add_float_data(1), t.add_float_data(1);
  refuse(t, {"4 are needed"});
  expect_error(ErrorKind::kInvalidModel, {"TensorProto"}, [] { parse_tensor(bytes_of(std::string("\x4a\x7f", 2))); });
  t = tensor(TP::FLOAT, {1});
  t.mutable_segment()->set_begin(0);
  expect_error(ErrorKind::kUnsupported, {"segments"}, [&] { read(t); });
}

TEST(Tensor, SerializeInvertsParse) {
  const std::vector<std::byte> int4 = {std::byte{7}, std::byte{0xf8}, std::byte{0xff}};
  const std::vector<std::int64_t> dims = {3};
  Tensor t = parse_tensor(bytes_of(serialize_tensor("n", DType::kInt4, dims, int4)));
  EXPECT_EQ(t.name, "n");
  EXPECT_EQ(t.dtype, DType::kInt4);
  EXPECT_THAT(as_ints(t), ElementsAre(7, -8, -1));
  for (int type = 0; type < kDTypeCount; ++type) {
    const auto dtype = static_cast<DType>(type);
    std::vector<std::byte> data(3 * size_of(dtype));
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i % 2);
    t = parse_tensor(bytes_of(serialize_tensor("", dtype, dims, data)));
    ASSERT_EQ(t.bytes, data.size()) << name(dtype);
    EXPECT_EQ(t.dtype, dtype);
    EXPECT_EQ(std::memcmp(t.data, data.data(), data.size()), 0) << name(dtype);
  }
  expect_error(ErrorKind::kInvalidArgument, {"3 elements", "2 bytes"},
               [&] { serialize_tensor("n", DType::kInt8, dims, std::span(int4).first(2)); });
}

/// A model with one sparse initializer of shape [2, 3].
pb::ModelProto sparse_model(const std::vector<float>& values, const std::vector<std::int64_t>& indices, bool pairs) {
  pb::ModelProto m = make_model();
  add_node(m.mutable_graph(), "Add", {"x", "s"}, {"y"});
  pb::SparseTensorProto* s = m.mutable_graph()->add_sparse_initializer();
  pb::TensorProto* v = s->mutable_values();
  *v = tensor(TP::FLOAT, {static_cast<std::int64_t>(values.size())});
  v->set_name("s");
  for (const float x : values) v->add_float_data(x);
  *s->mutable_indices() = tensor(TP::INT64, {static_cast<std::int64_t>(values.size())});
  if (pairs) s->mutable_indices()->add_dims(2);
  for (const std::int64_t i : indices) s->mutable_indices()->add_int64_data(i);
  s->add_dims(2), s->add_dims(3);
  return m;
}

TEST(SparseTensor, BecomesDense) {
  for (const bool pairs : {false, true}) {
    const pb::ModelProto m = pairs ? sparse_model({5, 6}, {0, 2, 1, 1}, true) : sparse_model({5, 6}, {2, 4}, false);
    const Tensor t = parse(m).graph.initializers.at(0);
    EXPECT_EQ(t.name, "s");
    EXPECT_THAT(t.dims, ElementsAre(2, 3));
    EXPECT_THAT(t.as<float>(), ElementsAre(0, 0, 5, 0, 6, 0));
  }
  EXPECT_THAT(parse(sparse_model({}, {}, false)).graph.initializers.at(0).as<float>(), ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST(SparseTensor, AsAttribute) {
  pb::ModelProto m = make_model({"x"}, {"y"});
  pb::NodeProto* n = add_node(m.mutable_graph(), "Constant", {}, {"y"});
  *add_attribute(n, "sparse_value", pb::AttributeProto::SPARSE_TENSOR)->mutable_sparse_tensor() =
      sparse_model({1}, {5}, false).graph().sparse_initializer(0);
  EXPECT_THAT(parse(m).graph.nodes[0].get_tensor("sparse_value")->as<float>(), ElementsAre(0, 0, 0, 0, 0, 1));
}

TEST(SparseTensor, Malformed) {
  expect_invalid(sparse_model({1}, {6}, false), {"'s'", "outside its shape"});
  expect_invalid(sparse_model({1}, {-1}, false), {"outside its shape"});
  expect_invalid(sparse_model({1}, {0, 3}, true), {"outside its shape"});
  expect_invalid(sparse_model({1, 2}, {3, 3}, false), {"ascend", "entry 1"});
  expect_invalid(sparse_model({1, 2}, {4, 3}, false), {"ascend"});
  pb::ModelProto m = sparse_model({1}, {0}, false);
  m.mutable_graph()->mutable_sparse_initializer(0)->mutable_indices()->set_dims(0, 2);
  m.mutable_graph()->mutable_sparse_initializer(0)->mutable_indices()->add_int64_data(1);
  expect_invalid(m, {"'s'", "shape [n]"});
  m = sparse_model({1}, {0}, false);
  m.mutable_graph()->mutable_sparse_initializer(0)->set_dims(1, std::int64_t{1} << 40);
  expect_unsupported(m, {"'s'", "256 MiB", "store it dense"});
  m.mutable_graph()->mutable_sparse_initializer(0)->set_dims(0, std::int64_t{1} << 40);
  expect_invalid(m, {"overflows"});
  m = sparse_model({1}, {0}, false);
  add_initializer(m.mutable_graph(), "s", {1});
  expect_invalid(m, {"'s'", "twice"});
}

}  // namespace
}  // namespace sardonyx::onnx
