// Files of programs: the model and its options before compiling, the compiled program afterwards.
//
//   "SDXMGX" and the format's version, 8 bytes; size of the header, 8 bytes, little-endian
//   header     JSON: what the program is beyond its content (below)
//   zeros      to a multiple of 64 bytes
//   content    an ONNX model, or a program file (program/program_file.h)
//
// With the format "json" the file is one JSON object: the header, with the content in base64 as "content".
#include "program/program_file.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "migraphx/files.h"
#include "migraphx/program.h"
#include "migraphx/shape.h"
#include "migraphx/temporary.h"
#include "onnx/load.h"
#include "onnx/write.h"
#include "support/data.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

using nlohmann::json;

constexpr char kMagic[9] = "SDXMGX\x01\n";
constexpr std::size_t kPrefix = 16, kAlign = 64;
constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string to_base64(std::string_view bytes) {
  std::string out;
  for (std::size_t k = 0; k < bytes.size(); k += 3) {
    const std::size_t n = std::min<std::size_t>(bytes.size() - k, 3);
    std::uint32_t v = 0;
    for (std::size_t i = 0; i < 3; ++i) v = v << 8 | (i < n ? static_cast<unsigned char>(bytes[k + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i) out += i <= n ? kBase64[v >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

std::string from_base64(std::string_view text) {
  std::string out;
  std::uint32_t v = 0;
  int bits = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    const char* at = c ? std::strchr(kBase64, c) : nullptr;
    if (!at) fail(ErrorKind::kInvalidModel, "its content is not base64");
    v = v << 6 | static_cast<std::uint32_t>(at - kBase64);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out += static_cast<char>(v >> bits & 255);
  }
  return out;
}

json to_json(const migraphx_shape& s) {
  json j = {{"type", static_cast<int>(s.type)}};
  if (!s.is_dynamic()) {
    j["lengths"] = s.lengths;
    j["strides"] = s.strides;
    return j;
  }
  for (const migraphx_dynamic_dimension& d : s.dynamic) j["dims"].push_back({d.min, d.max, d.optimals});
  return j;
}

migraphx_shape shape_from(const json& j) {
  migraphx_shape s = standard_shape(static_cast<migraphx_shape_datatype_t>(j.at("type").get<int>()), {});
  if (j.contains("dims")) {
    s.lengths.clear();
    s.strides.clear();
    for (const json& d : j.at("dims"))
      s.dynamic.push_back(
          {d.at(0).get<std::size_t>(), d.at(1).get<std::size_t>(), d.at(2).get<std::set<std::size_t>>()});
  } else {
    s.lengths = j.at("lengths").get<std::vector<std::size_t>>();
    s.strides = j.at("strides").get<std::vector<std::size_t>>();
  }
  const bool fits = s.is_dynamic() ? s.lengths.empty() : !s.lengths.empty() && s.lengths.size() == s.strides.size();
  if (!fits) fail(ErrorKind::kInvalidModel, "a shape in it is malformed");
  if (!s.is_dynamic()) bytes_of(s);  // throws if it overflows
  return s;
}

/// What to do about a file that is none of ours.
[[noreturn]] void refuse(const std::string& bytes) {
  const unsigned char first = bytes.empty() ? 0 : static_cast<unsigned char>(bytes[0]);
  const bool msgpack = (first & 0xf0) == 0x80 || first == 0xde || first == 0xdf;
  if (msgpack || bytes.find("migraphx_version") != std::string::npos)
    fail(
        ErrorKind::kUnsupported,
        "this is a program of MIGraphX's own (MXR), which holds its operators and kernels and can't be read; parse the "
        "ONNX model it was made from, compile it, and save that");
  fail(ErrorKind::kInvalidModel, "this is not a program that migraphx_save wrote");
}

struct Content {
  json header;
  std::string bytes;
};

Content split(std::string file, const std::string& format) {
  if (format == "json" || (!file.empty() && file[0] == '{')) {
    Content c{json::parse(file, nullptr, false), {}};
    if (!c.header.is_object() || !c.header.contains("sardonyx")) refuse(file);
    c.bytes = from_base64(c.header.at("content").get_ref<const std::string&>());
    return c;
  }
  if (file.size() < kPrefix || std::memcmp(file.data(), kMagic, 8) != 0) refuse(file);
  std::uint64_t size = 0;
  std::memcpy(&size, file.data() + 8, 8);
  if (size > file.size() - kPrefix) fail(ErrorKind::kInvalidModel, "the file is truncated");
  Content c{
      json::parse(file.begin() + kPrefix, file.begin() + static_cast<std::ptrdiff_t>(kPrefix + size), nullptr, false),
      {}};
  if (!c.header.is_object()) fail(ErrorKind::kInvalidModel, "the file is damaged");
  const std::size_t start = (kPrefix + size + kAlign - 1) / kAlign * kAlign;
  if (start > file.size()) fail(ErrorKind::kInvalidModel, "the file is truncated");
  c.bytes = file.substr(start);
  return c;
}

}  // namespace

/// Access to what a program consists of.
class ProgramFile {
 public:
  static json header(const MigraphxProgram& p) {
    json h = {{"sardonyx", 1},
              {"kind", p.is_compiled() ? "program" : "onnx"},
              {"precision", p.precision_},
              {"calibration", p.calibration_},
              {"target", p.placement_.target},
              {"offload_copy", p.placement_.offload_copy}};
    h["inputs"] = json::array();
    h["outputs"] = json::array();
    for (const Parameter& i : p.inputs_) h["inputs"].push_back({{"name", i.name}, {"shape", to_json(i.shape)}});
    for (const migraphx_shape& s : p.outputs_) h["outputs"].push_back(to_json(s));
    return h;
  }

  static std::string content(const MigraphxProgram& p) {
    if (!p.is_compiled()) {
      p.require_uncompiled("saving");
      return onnx::serialize(*p.nodes_);
    }
    const TemporaryFolder folder;
    p.compiled_->save(folder.path() / "program");
    return read_file(folder.path() / "program");
  }

  static MigraphxProgram read(const json& h, const std::string& bytes) {
    MigraphxProgram p;
    p.precision_ = h.at("precision").get<std::string>();
    p.calibration_ = h.at("calibration").get<std::string>();
    for (const json& i : h.at("inputs"))
      p.inputs_.push_back({i.at("name").get<std::string>(), shape_from(i.at("shape"))});
    for (const json& s : h.at("outputs")) p.outputs_.push_back(shape_from(s));
    if (h.at("kind") == "onnx") {
      p.nodes_ = std::make_shared<const model::Model>(onnx::parse(std::as_bytes(std::span(bytes))));
      p.describe_outputs();
      return p;
    }
    p.placement_ = {h.at("target").get<std::string>(), h.at("offload_copy").get<bool>()};
    std::byte* to = nullptr;
    const Data data = make_data(bytes.size(), &to);
    std::memcpy(to, bytes.data(), bytes.size());
    Options o = p.compile_options(p.placement_.target);
    const std::string gpu = is_gpu_name(o.device) ? open_gpu(o.device)->info().target : "";
    p.compiled_ = Model::from_program(parse_program({data.bytes, bytes.size()}, data.owner, 1, gpu), o);
    if (p.compiled_->gpu()) p.stream_ = p.compiled_->gpu()->create_stream();
    const std::size_t outputs = p.compiled_->outputs().size();
    if (p.outputs_.size() != outputs || p.inputs_.size() < p.compiled_->inputs().size())
      fail(ErrorKind::kInvalidModel, "the file is damaged: its program has other inputs and outputs");
    return p;
  }
};

std::string MigraphxProgram::serialize(const std::string& format) const {
  if (format != "msgpack" && format != "json")
    fail(ErrorKind::kInvalidArgument, "the file format '{}' does not exist; it is msgpack or json", format);
  require_no_custom_operators("saved");
  json header = ProgramFile::header(*this);
  const std::string content = ProgramFile::content(*this);
  if (format == "json") {
    header["content"] = to_base64(content);
    return header.dump();
  }
  const std::string text = header.dump();
  const std::uint64_t size = text.size();
  std::string file(kMagic, 8);
  file.append(reinterpret_cast<const char*>(&size), 8);
  file += text;
  file.resize((file.size() + kAlign - 1) / kAlign * kAlign);
  return file + content;
}

MigraphxProgram MigraphxProgram::deserialize(std::string bytes, const std::string& format) {
  try {
    const Content c = split(std::move(bytes), format);
    return ProgramFile::read(c.header, c.bytes);
  } catch (const json::exception&) {
    fail(ErrorKind::kInvalidModel, "the file is damaged");
  }
}

void MigraphxProgram::save(const std::filesystem::path& path, const std::string& format) const {
  write_file(path, serialize(format));
}

MigraphxProgram MigraphxProgram::load(const std::filesystem::path& path, const std::string& format) {
  std::string bytes = read_file(path);
  try {
    return deserialize(std::move(bytes), format);
  } catch (const Error& e) {
    throw Error(e.kind(), path.string() + ": " + e.what());
  }
}

}  // namespace sardonyx::mgx
