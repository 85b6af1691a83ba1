// External data: mapping, alignment, and files that must not be opened.
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "build_model.h"
#include "onnx/external_data.h"
#include "onnx/split.h"

namespace sardonyx::onnx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

/// y = x + w, where w is 4 int32 in an external file.
pb::ModelProto model_with(const std::vector<std::pair<std::string, std::string>>& keys) {
  pb::ModelProto m = make_model();
  add_node(m.mutable_graph(), "Add", {"x", "w"}, {"y"});
  pb::TensorProto* t = m.mutable_graph()->add_initializer();
  t->set_name("w"), t->set_data_type(pb::TensorProto::INT32), t->add_dims(4);
  t->set_data_location(pb::TensorProto::EXTERNAL);
  for (const auto& [key, value] : keys) {
    auto* e = t->add_external_data();
    e->set_key(key), e->set_value(value);
  }
  return m;
}

std::string numbers(int n) {
  std::string out(4 * static_cast<std::size_t>(n), '\0');
  for (int i = 0; i < n; ++i) std::memcpy(&out[4 * static_cast<std::size_t>(i)], &i, 4);
  return out;
}

class External : public testing::Test {
 protected:
  /// Expects that the model, as a file in the folder, is refused.
  void refuse(ErrorKind kind, const std::vector<std::pair<std::string, std::string>>& keys,
              std::vector<std::string> parts) {
    folder.write("m.onnx", model_with(keys).SerializeAsString());
    parts.push_back("m.onnx: initializer 'w'");
    expect_error(kind, parts, [&] { load(folder.path() / "m.onnx"); });
  }
  Tensor read(const std::vector<std::pair<std::string, std::string>>& keys) {
    folder.write("m.onnx", model_with(keys).SerializeAsString());
    return load(folder.path() / "m.onnx").graph.initializers.at(0);
  }
  TemporaryFolder folder;
};

TEST_F(External, Reads) {
  folder.write("w.bin", numbers(100));
  EXPECT_THAT(read({{"location", "w.bin"}}).as<int>(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(read({{"location", "w.bin"}, {"offset", "16"}, {"length", "16"}, {"checksum", "ignored"}}).as<int>(),
              ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(read({{"location", "./w.bin"}, {"offset", "384"}}).as<int>(), ElementsAre(96, 97, 98, 99));
  const Tensor unaligned = read({{"location", "w.bin"}, {"offset", "4"}});  // copied
  EXPECT_THAT(unaligned.as<int>(), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(unaligned.data) % 16, 0u);
  folder.write("data/deep/w.bin", numbers(4));
  EXPECT_THAT(read({{"location", "data/deep/w.bin"}}).as<int>(), ElementsAre(0, 1, 2, 3));
}

TEST_F(External, AlignedDataIsMappedNotCopied) {
  folder.write("w.bin", numbers(100));
  const Tensor t = read({{"location", "w.bin"}, {"offset", "16"}});
  std::ifstream maps("/proc/self/maps");
  std::string line, found;
  while (std::getline(maps, line))
    if (line.find((fs::canonical(folder.path()) / "w.bin").string()) != std::string::npos) found = line;
  ASSERT_FALSE(found.empty());
  const auto begin = std::stoull(found.substr(0, found.find('-')), nullptr, 16);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data), begin + 16);
}

TEST_F(External, SubByteTypesAreUnpacked) {
  folder.write("w.bin", std::string("\x87\x0f", 2));
  pb::ModelProto m = model_with({{"location", "w.bin"}});
  m.mutable_graph()->mutable_initializer(0)->set_data_type(pb::TensorProto::UINT4);
  m.mutable_graph()->mutable_initializer(0)->set_dims(0, 3);
  EXPECT_THAT(parse(m, folder.path()).graph.initializers[0].as<std::uint8_t>(), ElementsAre(7, 8, 15));
}

TEST_F(External, LinksInsideTheFolderAreFollowed) {
  folder.write("real.bin", numbers(4));
  fs::create_symlink("real.bin", folder.path() / "w.bin");
  EXPECT_THAT(read({{"location", "w.bin"}}).as<int>(), ElementsAre(0, 1, 2, 3));
}

TEST_F(External, AFolderOfLinksToTheModelsFolder) {
  // As download caches lay it out: both files are links into one folder elsewhere.
  folder.write("blobs/1", model_with({{"location", "w.bin"}}).SerializeAsString());
  folder.write("blobs/2", numbers(4));
  fs::create_directories(folder.path() / "snapshot");
  fs::create_symlink("../blobs/1", folder.path() / "snapshot/m.onnx");
  fs::create_symlink("../blobs/2", folder.path() / "snapshot/w.bin");
  EXPECT_THAT(load(folder.path() / "snapshot/m.onnx").graph.initializers[0].as<int>(), ElementsAre(0, 1, 2, 3));
}

TEST_F(External, NeverOutsideTheFolder) {
  const TemporaryFolder outside;
  outside.write("secret", numbers(4));
  const std::string secret = (outside.path() / "secret").string();
  const ErrorKind invalid = ErrorKind::kInvalidModel;
  refuse(invalid, {{"location", secret}}, {"inside the model's folder"});
  refuse(invalid, {{"location", "../" + outside.path().filename().string() + "/secret"}},
         {"inside the model's folder"});
  refuse(invalid, {{"location", "a/../../b"}}, {"inside the model's folder"});
  refuse(invalid, {{"location", ""}}, {"inside the model's folder"});
  refuse(invalid, {}, {"inside the model's folder"});
  refuse(invalid, {{"location", std::string("w.bin\0x", 7)}}, {"inside the model's folder"});
  fs::create_symlink(secret, folder.path() / "link");
  refuse(invalid, {{"location", "link"}}, {"leaves the model's folder"});
  fs::create_directory_symlink(outside.path(), folder.path() / "linked");
  refuse(invalid, {{"location", "linked/secret"}}, {"leaves the model's folder"});
  // A sibling whose path begins like the folder's.
  const fs::path sibling = folder.path().string() + "x";
  fs::create_directories(sibling);
  std::ofstream(sibling / "w.bin") << numbers(4);
  fs::create_symlink(sibling / "w.bin", folder.path() / "sly");
  refuse(invalid, {{"location", "sly"}}, {"leaves the model's folder"});
  fs::remove_all(sibling);
}

TEST_F(External, OnlyRegularFiles) {
  refuse(ErrorKind::kIo, {{"location", "absent.bin"}}, {"absent.bin", "No such file"});
  refuse(ErrorKind::kIo, {{"location", "."}}, {"not a regular file"});
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  refuse(ErrorKind::kIo, {{"location", "pipe"}}, {"not a regular file"});  // and does not wait for a writer
  expect_error(ErrorKind::kIo, {"pipe", "not a regular file"}, [&] { load(folder.path() / "pipe"); });
  expect_error(ErrorKind::kIo, {"nothing.onnx", "No such file"}, [&] { load(folder.path() / "nothing.onnx"); });
}

TEST_F(External, Ranges) {
  folder.write("w.bin", numbers(5));
  const ErrorKind invalid = ErrorKind::kInvalidModel;
  refuse(invalid, {{"location", "w.bin"}, {"offset", "8"}}, {"16 bytes from 8", "which has 20"});
  refuse(invalid, {{"location", "w.bin"}, {"offset", "18446744073709551600"}}, {"which has 20"});
  refuse(invalid, {{"location", "w.bin"}, {"offset", "18446744073709551616"}}, {"offset", "not a number"});
  refuse(invalid, {{"location", "w.bin"}, {"offset", "-1"}}, {"offset", "not a number"});
  refuse(invalid, {{"location", "w.bin"}, {"offset", "1x"}}, {"offset", "not a number"});
  refuse(invalid, {{"location", "w.bin"}, {"length", "20"}}, {"16 bytes", "20 bytes of external data"});
  refuse(invalid, {{"location", "w.bin"}, {"offset", "0"}, {"offset", "4"}}, {"'offset' twice"});
  pb::ModelProto m = model_with({{"location", "w.bin"}});
  m.mutable_graph()->mutable_initializer(0)->set_dims(0, std::int64_t{1} << 50);
  expect_error(invalid, {"which has 20"}, [&] { parse(m, folder.path()); });
}

TEST_F(External, DataInMemoryIsUsedWhereItIs) {
  const auto owner = std::make_shared<std::string>(numbers(100));
  const auto* data = reinterpret_cast<const std::byte*>(owner->data());
  const std::string text = model_with({{"location", "weights"}, {"offset", "32"}}).SerializeAsString();
  const auto bytes = std::as_bytes(std::span(text));
  {
    const Model m = parse(bytes, {{"weights", {owner, data, owner->size()}}});
    const Tensor& w = m.graph.initializers.at(0);
    EXPECT_THAT(w.as<int>(), ElementsAre(8, 9, 10, 11));
    EXPECT_EQ(w.data, data + 32);
    EXPECT_EQ(owner.use_count(), 2);
  }
  EXPECT_EQ(owner.use_count(), 1);
  expect_error(ErrorKind::kInvalidModel, {"'w' needs 16 bytes", "32 of 'weights'", "40"},
               [&] { parse(bytes, {{"weights", {owner, data, 40}}}); });
  expect_error(ErrorKind::kInvalidModel, {"'weights'", "memory has no folder"},
               [&] { parse(bytes, {{"other", {owner, data, owner->size()}}}); });
}

TEST_F(External, AModelFromMemoryHasNoFolder) {
  expect_invalid(model_with({{"location", "w.bin"}}), {"'w'", "load it by its path"});
}

TEST_F(External, OverlappingTensorsDoNotMultiplyAFile) {
  folder.write("w.bin", std::string(1 << 20, '\1'));
  pb::ModelProto m = model_with({{"location", "w.bin"}});
  for (int i = 0; i < 1000; ++i) {
    pb::TensorProto* t = m.mutable_graph()->add_initializer();
    *t = m.graph().initializer(0);
    t->set_name("w" + std::to_string(i)), t->set_data_type(pb::TensorProto::BOOL), t->set_dims(0, (1 << 20) - 2000);
    auto* e = t->add_external_data();
    e->set_key("offset"), e->set_value(std::to_string(2 * i + 1));  // all copied
  }
  expect_error(ErrorKind::kInvalidModel, {"overlap"}, [&] { parse(m, folder.path()); });
  // The same range many times is one copy.
  for (int i = 0; i < 1000; ++i)
    m.mutable_graph()->mutable_initializer(i + 1)->mutable_external_data(1)->set_value("1");
  const Graph graph = parse(m, folder.path()).graph;
  EXPECT_EQ(graph.initializers[1].data, graph.initializers[1000].data);
}

// Large raw data stay in the file; what load() gives is what parse() gives.
TEST_F(External, LargeWeightsAreNotCopied) {
  pb::ModelProto m = model_with({{"location", "w.bin"}});
  m.mutable_graph()->clear_initializer();
  for (int k = 0; k < 6; ++k) {
    pb::TensorProto* t = m.mutable_graph()->add_initializer();
    t->set_name(k == 0 ? "w" : "w" + std::to_string(k));
    t->set_data_type(pb::TensorProto::FLOAT);
    const int n = k % 2 ? 40000 + k : 5;
    t->add_dims(n);
    std::vector<float> values(static_cast<std::size_t>(n), static_cast<float>(k) + 0.5f);
    t->set_raw_data(std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  }
  const std::string text = m.SerializeAsString();
  folder.write("m.onnx", text);
  const Model a = load(folder.path() / "m.onnx"), b = parse(std::as_bytes(std::span(text)));
  ASSERT_EQ(a.graph.initializers.size(), b.graph.initializers.size());
  for (std::size_t k = 0; k < a.graph.initializers.size(); ++k) {
    const Tensor &x = a.graph.initializers[k], &y = b.graph.initializers[k];
    EXPECT_EQ(x.name, y.name);
    ASSERT_EQ(x.bytes, y.bytes);
    EXPECT_EQ(std::memcmp(x.data, y.data, x.bytes), 0);
  }
  forget_pages(a.graph.initializers[1].data, a.graph.initializers[1].bytes);
  EXPECT_EQ(std::memcmp(a.graph.initializers[1].data, b.graph.initializers[1].data, a.graph.initializers[1].bytes), 0);

  const SplitModel split = split_model(std::as_bytes(std::span(text)));
  EXPECT_LT(split.structure.size(), 2000u);
  ASSERT_EQ(split.raw.size(), 6u);
  EXPECT_EQ(split.raw[3].size(), 4u * 40003);
  // Sizes are still checked.
  m.mutable_graph()->mutable_initializer(1)->set_dims(0, 7);
  folder.write("bad.onnx", m.SerializeAsString());
  expect_error(ErrorKind::kInvalidModel, {"w1", "7 elements"}, [&] { load(folder.path() / "bad.onnx"); });
}

TEST(Split, TruncatedModelsKeepTheirBytes) {
  pb::ModelProto m;
  pb::TensorProto* t = m.mutable_graph()->add_initializer();
  t->set_raw_data(std::string(kSplitBytes, 'x'));
  const std::string text = m.SerializeAsString();
  for (std::size_t size = 0; size < text.size(); size += size < 40 ? 1 : 999) {
    const std::string cut = text.substr(0, size);
    const SplitModel split = split_model(std::as_bytes(std::span(cut)));
    EXPECT_EQ(split.structure, cut);
  }
  EXPECT_LT(split_model(std::as_bytes(std::span(text))).structure.size(), 20u);
}

}  // namespace
}  // namespace sardonyx::onnx
