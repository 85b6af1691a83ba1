// Containers of programs; see ep_context.h.
#include "ep/ep_context.h"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <span>

#include "ep/original_model.h"
#include "model/bytes.h"
#include "program/program_file.h"
#include "support/mapped_file.h"

namespace sardonyx::ep {
namespace {

constexpr std::string_view kMagic = "SDXCTX02";
constexpr std::string_view kFingerprint = "original model: ";  // in the attribute "notes"
constexpr std::size_t kAlign = 64;            // of programs in the file: a cache line, as program files require
constexpr std::uint32_t kMaxCount = 1 << 16;  // of entries: a damaged count must not allocate without bound

std::size_t aligned(std::size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

template <typename T>
void put(std::string& out, T value) {
  for (std::size_t k = 0; k < sizeof value; ++k) out += static_cast<char>(value >> (8 * k) & 0xff);
}
void put(std::string& out, const std::string& text) {
  put(out, static_cast<std::uint32_t>(text.size()));
  out += text;
}
void put(std::string& out, const std::vector<std::string>& list) {
  put(out, static_cast<std::uint32_t>(list.size()));
  for (const std::string& s : list) put(out, s);
}

[[noreturn]] void damaged(const char* what) {
  fail(ErrorKind::kInvalidModel, "the compiled program in the EPContext model is damaged: {}", what);
}

class ContextReader {
 public:
  explicit ContextReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  T number() {
    const auto b = take(sizeof(T));
    T value = 0;
    for (std::size_t k = 0; k < sizeof(T); ++k) value |= static_cast<T>(std::to_integer<T>(b[k]) << (8 * k));
    return value;
  }
  std::string text() {
    const auto b = take(number<std::uint32_t>());
    return {reinterpret_cast<const char*>(b.data()), b.size()};
  }
  std::vector<std::string> texts() {
    const auto n = number<std::uint32_t>();
    if (n > kMaxCount) damaged("a count");
    std::vector<std::string> out;
    for (std::uint32_t k = 0; k < n; ++k) out.push_back(text());
    return out;
  }
  std::span<const std::byte> take(std::size_t n) {
    if (n > bytes_.size() - at_) damaged("it ends early");
    at_ += n;
    return bytes_.subspan(at_ - n, n);
  }
  std::size_t position() const { return at_; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

// Messages name targets without the host's features.
std::string short_target(const std::string& target) { return target.substr(0, target.find(' ')); }

std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string attribute(const Ort& ort, const OrtNode* n, const char* name) {
  for (const OrtOpAttr* a : ort.attributes(n)) {
    const char* text = nullptr;
    ort.require(ort->OpAttr_GetName(a, &text));
    if (std::string_view(text) != name) continue;
    OrtOpAttrType type = ORT_OP_ATTR_UNDEFINED;
    ort.require(ort->OpAttr_GetType(a, &type));
    std::size_t bytes = 0;
    if (type == ORT_OP_ATTR_INT) {
      std::int64_t value = 0;
      ort.require(ort->ReadOpAttr(a, type, &value, sizeof value, &bytes));
      return std::to_string(value);
    }
    if (OrtStatus* s = ort->ReadOpAttr(a, type, nullptr, 0, &bytes)) ort->ReleaseStatus(s);
    std::string out(bytes, '\0');
    ort.require(ort->ReadOpAttr(a, type, out.data(), out.size(), &bytes));
    return out;
  }
  return "";
}

std::filesystem::path folder_of(const Ort& ort, const OrtGraph* graph, const ProviderOptions& options) {
  const std::string path = ort.model_path(graph);
  return (path.empty() ? options.context_file : std::filesystem::path(path)).parent_path();
}

}  // namespace

std::string write_context(const ContextNames& names, const std::vector<std::shared_ptr<const Program>>& programs) {
  std::string out(kMagic);
  put(out, names.inputs);
  put(out, names.outputs);
  std::vector<std::string> targets;
  for (const auto& p : programs) targets.push_back(p->target);
  put(out, targets);
  out.resize(aligned(out.size()));
  std::string name = (std::filesystem::temp_directory_path() / "sardonyx-context-XXXXXX").string();
  const int fd = ::mkstemp(name.data());
  if (fd < 0) fail(ErrorKind::kIo, "cannot create a file in {}", std::filesystem::temp_directory_path().string());
  ::close(fd);
  struct Remove {
    std::string name;
    ~Remove() { ::unlink(name.c_str()); }
  } remove{name};
  save_programs(programs, name);
  return out + file_text(name);
}

std::shared_ptr<CompiledGroup> read_context(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                            const ProviderOptions& options,
                                            const std::shared_ptr<ProviderDevice>& device, ContextNames& names) {
  ContextReader r(bytes);
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    damaged("it does not begin as one of this version of the provider does");
  r.take(kMagic.size());
  names.inputs = r.texts();
  names.outputs = r.texts();
  const std::vector<std::string> targets = r.texts();
  std::string held, why;
  bool fits = false;
  for (const std::string& t : targets) {
    held += (held.empty() ? "" : ", ") + short_target(t);
    const bool for_host = t.find(' ') != std::string::npos;
    if (for_host != device->is_host()) continue;
    if (for_host) why = why_not_on(t, device->info().target);
    fits |= for_host ? why.empty() : runs_on(t, device->info().target);
  }
  if (!fits)
    fail(ErrorKind::kUnsupported,
         "the EPContext model was compiled for {}, and the session's device is {} ({}){}{}; compile it again",
         held.empty() ? "nothing" : held, device->info().name, short_target(device->info().target),
         why.empty() ? "" : ": ", why);
  const std::size_t start = aligned(r.position());
  if (start > bytes.size()) damaged("it ends early");
  const std::string gpu = device->is_host() ? "" : device->info().target;
  auto program = parse_program(bytes.subspan(start), std::move(owner), 1, gpu);
  auto group = std::make_shared<CompiledGroup>();
  group->device = device;
  group->outputs = program->output_names;
  group->model = Model::from_program(std::move(program), model_options(options, *device));
  for (const TensorInfo& t : group->model->inputs()) {
    group->inputs.push_back(t.name);
    group->input_types.push_back(t.dtype);
  }
  return group;
}

bool is_context(const Ort& ort, const OrtNode* n) {
  if (ort.op(n) != kContextOp || ort.domain(n) != kContextDomain) return false;
  const std::string source = attribute(ort, n, "source");
  if (source != kProvider)
    fail(ErrorKind::kUnsupported, "the EPContext node was made by '{}'",
         source.empty() ? "an unnamed provider" : source);
  return true;
}

std::shared_ptr<CompiledGroup> load_context(const Ort& ort, const OrtNode* n, const OrtGraph* graph,
                                            const ProviderOptions& options,
                                            const std::shared_ptr<ProviderDevice>& device, ContextNames& names) {
  const std::string content = attribute(ort, n, "ep_cache_context");
  if (attribute(ort, n, "embed_mode") != "0") {  // the operator's default is 1
    std::byte* p = nullptr;
    const model::Bytes copy = model::aligned_zeros(content.size(), p);
    std::memcpy(p, content.data(), content.size());
    return read_context({copy.data, copy.size}, copy.owner, options, device, names);
  }
  const std::filesystem::path relative = content;
  if (relative.is_absolute() || relative.has_parent_path() || relative == "..")
    fail(ErrorKind::kInvalidModel, "the EPContext node names the file '{}', which is not in the model's folder",
         content);
  const auto map = std::make_shared<const MappedFile>(folder_of(ort, graph, options) / relative);
  return read_context({map->data(), map->size()}, map, options, device, names);
}

GroupModel original_of(const Ort& ort, const OrtNode* n, const OrtGraph* graph, const ProviderOptions& options) {
  std::filesystem::path file = options.context_rebuild;
  std::string recorded;
  if (options.context_rebuild == "1") {
    const std::string name = attribute(ort, n, "onnx_model_filename");
    if (name.empty())
      fail(ErrorKind::kInvalidModel,
           "the EPContext model does not name the model that it was compiled from; give its path as context_rebuild");
    if (std::filesystem::path(name).filename() != name || name == "..")
      fail(ErrorKind::kInvalidModel, "the EPContext model names '{}', which is not in its folder", name);
    file = folder_of(ort, graph, options) / name;
    recorded = attribute(ort, n, "notes");
  }
  GraphReader reader(ort, graph);
  std::vector<model::ValueInfo> inputs, outputs;
  for (const OrtValueInfo* v : ort.inputs(n))
    if (v) inputs.push_back(reader.value(v));
  for (const OrtValueInfo* v : ort.outputs(n))
    if (v) outputs.push_back(reader.value(v));
  return original_subgraph(file, recorded.starts_with(kFingerprint) ? recorded.substr(kFingerprint.size()) : "", inputs,
                           outputs);
}

std::string compatibility_info(const std::vector<std::string>& targets) {
  return fmt::format("sardonyx;{};{}", program_format(), fmt::join(targets, "|"));
}

OrtCompiledModelCompatibility compatibility(std::string_view info,
                                            const std::vector<std::shared_ptr<ProviderDevice>>& devices) {
  const auto part = [&info] {
    const std::size_t end = std::min(info.find(';'), info.size());
    const std::string_view p = info.substr(0, end);
    info.remove_prefix(std::min(end + 1, info.size()));
    return p;
  };
  if (part() != "sardonyx") return OrtCompiledModelCompatibility_EP_NOT_APPLICABLE;
  if (part() != program_format()) return OrtCompiledModelCompatibility_EP_UNSUPPORTED;
  auto best = OrtCompiledModelCompatibility_EP_UNSUPPORTED;
  while (!info.empty()) {
    const std::size_t end = std::min(info.find('|'), info.size());
    const std::string target(info.substr(0, end));
    info.remove_prefix(std::min(end + 1, info.size()));
    for (const auto& c : devices) {
      if (target == c->info().target) return OrtCompiledModelCompatibility_EP_SUPPORTED_OPTIMAL;
      const bool host = target.find(' ') != std::string::npos;
      if (host == c->is_host() &&
          (host ? why_not_on(target, c->info().target).empty() : runs_on(target, c->info().target)))
        best = OrtCompiledModelCompatibility_EP_SUPPORTED_PREFER_RECOMPILATION;
    }
  }
  return best;
}

OrtNode* make_context_node(const Ort& ort, const OrtNode* fused, const OrtGraph* graph, const ContextNames& names,
                           const std::vector<std::shared_ptr<const Program>>& programs,
                           const ProviderOptions& options) {
  const std::string name = options.context_prefix + ort.name(fused);
  std::string content = write_context(names, programs);
  std::string targets;
  for (const auto& p : programs) targets += (targets.empty() ? "" : ",") + short_target(p->target);
  if (!options.context_embed) {
    std::filesystem::path model = options.context_file;
    if (model.empty()) model = ort.model_path(graph);
    if (model.empty())
      fail(ErrorKind::kInvalidArgument,
           "a model from memory has no folder for its compiled programs: set ep.context_file_path, or "
           "ep.context_embed_mode to 1");
    const std::string file = fmt::format("{}_{}.sardonyx", model.stem().string(), name);
    const std::filesystem::path path = model.parent_path() / file;
    std::ofstream out(path, std::ios::binary);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    out.close();
    if (!out) fail(ErrorKind::kIo, "{} can't be written", path.string());
    content = file;
  }
  std::vector<OrtOpAttr*> attributes;
  struct Release {
    const Ort& ort;
    std::vector<OrtOpAttr*>& list;
    ~Release() {
      for (OrtOpAttr* a : list) ort->ReleaseOpAttr(a);
    }
  } release{ort, attributes};
  const auto text = [&](const char* key, const std::string& value) {
    OrtOpAttr* a = nullptr;
    ort.require(ort->CreateOpAttr(key, value.data(), static_cast<int>(value.size()), ORT_OP_ATTR_STRING, &a));
    attributes.push_back(a);
  };
  const auto number = [&](const char* key, std::int64_t value) {
    OrtOpAttr* a = nullptr;
    ort.require(ort->CreateOpAttr(key, &value, 1, ORT_OP_ATTR_INT, &a));
    attributes.push_back(a);
  };
  if (content.size() > INT32_MAX)
    fail(ErrorKind::kUnsupported, "{} bytes of compiled programs can't be embedded; set ep.context_embed_mode to 0",
         content.size());
  number("main_context", 1);
  number("embed_mode", options.context_embed ? 1 : 0);
  text("ep_cache_context", content);
  text("ep_sdk_version", SARDONYX_VERSION);
  text("source", kProvider);
  text("partition_name", name);
  text("hardware_architecture", targets);
  // For recompiling: the model's file name, which is looked up beside the EPContext model, and its fingerprint.
  if (const std::filesystem::path original = ort.model_path(graph); !original.empty()) {
    text("onnx_model_filename", original.filename().string());
    text("notes", std::string(kFingerprint) + fingerprint(original));
  }
  const auto pointers = [](const std::vector<std::string>& list) {
    std::vector<const char*> out;
    for (const std::string& s : list) out.push_back(s.c_str());
    return out;
  };
  const std::vector<const char*> inputs = pointers(names.inputs), outputs = pointers(names.outputs);
  OrtNode* node = nullptr;
  ort.require(ort.editor().CreateNode(kContextOp, kContextDomain, name.c_str(), inputs.data(), inputs.size(),
                                      outputs.data(), outputs.size(), attributes.data(), attributes.size(), &node));
  attributes.clear();  // the node owns them now
  return node;
}

}  // namespace sardonyx::ep
