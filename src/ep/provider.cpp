// The provider of a session: claims, compiles and allocates; see provider.h.
#include "ep/provider.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "api/host_info.h"
#include "ep/ep_context.h"
#include "ep/group_dump.h"
#include "ep/group_file.h"
#include "ep/memory.h"
#include "ep/stream.h"
#include "ep/warm_up.h"
#include "import/import.h"
#include "import/node_source.h"

namespace sardonyx::ep {
namespace {

template <typename F>
OrtStatus* guarded(const Ort& ort, F&& f) noexcept {
  return ort.guarded(std::forward<F>(f));
}

// A file of a compiled group that can't be used, or written: the session's error, not a reason to leave the group to
// another provider.
struct GroupFileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A key for a group's nodes that is the same in every graph in which ONNX Runtime presents them.
std::string key_of(const Ort& ort, const std::vector<const OrtNode*>& nodes) {
  std::vector<std::pair<std::size_t, std::string>> ids;
  for (const OrtNode* n : nodes) {
    std::string first;
    for (const OrtValueInfo* v : ort.outputs(n))
      if (v && first.empty()) first = ort.name(v);
    ids.emplace_back(ort.id(n), first);
  }
  std::sort(ids.begin(), ids.end());
  std::string key;
  for (const auto& [id, name] : ids) key += fmt::format("{}:{};", id, name);
  return key;
}

// One line per reason, with its nodes.
std::vector<std::string> by_reason(const std::vector<Unclaimed>& nodes) {
  std::map<std::string, std::vector<std::string>> reasons;
  for (const Unclaimed& u : nodes) reasons[u.reason].push_back(u.node);
  std::vector<std::string> out;
  for (const auto& [reason, list] : reasons) out.push_back(fmt::format("{}: {}", fmt::join(list, ", "), reason));
  return out;
}

}  // namespace

Provider::Provider(const Ort& ort, Log log, ProviderOptions options, std::shared_ptr<ProviderDevice> device)
    : LaterEp{}, ort_(ort), log_(log), options_(std::move(options)), device_(std::move(device)) {
  custom_ = known_custom_operators(options_.compile.custom_operators);
  trace_ = std::make_shared<Trace>(options_.profile_file);
  ort_version_supported = std::min(ort.version(), kNewestApi);
  GetName = [](const OrtEp*) noexcept -> const char* { return kProvider; };
  GetCapability = [](OrtEp* self, const OrtGraph* graph, OrtEpGraphSupportInfo* support) noexcept -> OrtStatus* {
    auto* p = static_cast<Provider*>(self);
    return guarded(p->ort_, [&] { p->capability(graph, support); });
  };
  Compile = [](OrtEp* self, const OrtGraph** graphs, const OrtNode** fused, std::size_t count,
               OrtNodeComputeInfo** computes, OrtNode** contexts) noexcept -> OrtStatus* {
    auto* p = static_cast<Provider*>(self);
    return guarded(p->ort_, [&] {
      for (std::size_t k = 0; k < count; ++k) p->compile(graphs[k], fused[k], &computes[k], &contexts[k]);
    });
  };
  ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo** computes, std::size_t count) noexcept {
    for (std::size_t k = 0; k < count; ++k) delete static_cast<GroupCompute*>(computes[k]);
  };
  CreateAllocator = [](OrtEp* self, const OrtMemoryInfo* info, OrtAllocator** out) noexcept -> OrtStatus* {
    auto* p = static_cast<Provider*>(self);
    return guarded(p->ort_, [&] { *out = p->allocator(info); });
  };
  GetCompiledModelCompatibilityInfo = [](OrtEp* self, const OrtGraph*) noexcept -> const char* {
    auto* p = static_cast<Provider*>(self);
    try {
      if (p->compatibility_.empty()) p->compatibility_ = compatibility_info(p->targets());
      return p->compatibility_.c_str();
    } catch (const std::exception&) {
      return "";  // unknown
    }
  };
  if (ort.version() >= 24)
    IsConcurrentRunSupported = [](OrtEp*, bool* is) noexcept -> OrtStatus* {
      *is = true;
      return nullptr;
    };
  if (!device_->is_host())
    CreateSyncStreamForDevice = [](OrtEp* self, const OrtMemoryDevice*,
                                   OrtSyncStreamImpl** out) noexcept -> OrtStatus* {
      auto* p = static_cast<Provider*>(self);
      return guarded(p->ort_, [&] {
        *out = new Stream(p->ort_, p->device_, reinterpret_cast<void*>(p->options_.user_compute_stream));
      });
    };
  if (ort.version() >= 25)
    CreateProfiler = [](OrtEp* self, OrtEpProfilerImpl** out) noexcept -> OrtStatus* {
      auto* p = static_cast<Provider*>(self);
      return guarded(p->ort_, [&] { *out = new Profiler(p->ort_, p->trace_); });
    };
  if (ort.version() >= 25)
    Sync = [](OrtEp* self) noexcept -> OrtStatus* {
      auto* p = static_cast<Provider*>(self);
      return guarded(p->ort_, [&] { p->device_->synchronize(nullptr); });
    };
}

OrtAllocator* Provider::allocator(const OrtMemoryInfo* info) {
  const bool pinned = ort_->MemoryInfoGetDeviceMemType(info) == OrtDeviceMemoryType_HOST_ACCESSIBLE;
  int id = 0;
  ort_.require(ort_->MemoryInfoGetId(info, &id));
  ArenaOptions arena;
  if (!pinned) arena = {options_.gpu_mem_limit, options_.compile.device_memory_budget, options_.same_as_requested};
  return new Allocator(ort_, device_, id, pinned, arena, pinned ? ExternalMemory{} : options_.external, log_);
}

// ONNX Runtime 1.23 does not report that a graph is nested. It gives groups of nested graphs the same names as groups
// of the main graph, and then fails because of the duplicates. So with 1.23 graphs that look nested are not claimed:
// they have no inputs, read values of an outer graph, or begin like a Loop's body.
bool Provider::looks_nested(const OrtGraph* graph) {
  const std::vector<const OrtValueInfo*> inputs = ort_.inputs(graph);
  if (inputs.empty()) return true;
  for (const OrtNode* n : ort_.nodes(graph))
    for (const OrtValueInfo* v : ort_.inputs(n)) {
      bool outer = false;
      if (v) ort_.require(ort_->ValueInfo_IsFromOuterScope(v, &outer));
      if (outer) return true;
    }
  GraphReader reader(ort_, graph);
  const auto type = [&](const OrtValueInfo* v) -> std::optional<DType> {
    try {
      return reader.value(v).dtype;
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  const std::vector<const OrtValueInfo*> outputs = ort_.outputs(graph);
  return inputs.size() >= 2 && !outputs.empty() && type(inputs[0]) == DType::kInt64 &&
         type(inputs[1]) == DType::kBool && type(outputs[0]) == DType::kBool;
}

// A nested graph is not claimed if its parent node can be claimed whole; ONNX Runtime asks for that node later. That of
// SequenceMap is not either: the operator is a function, which ONNX Runtime replaces by a Loop after this, where it no
// longer knows the domain of a group ("No opset import for domain").
bool Provider::left_to_parent(const OrtGraph* graph, GraphReader& reader) {
  const OrtNode* parent = ort_.parent(graph);
  if (!parent) return ort_.version() < 24 && looks_nested(graph);
  if (ort_.op(parent) == "SequenceMap") return true;
  if (!why_not(ort_, parent, reader, *custom_).empty()) return false;
  try {
    std::vector<const OrtValueInfo*> outputs = ort_.outputs(parent);
    std::erase(outputs, nullptr);
    const GroupModel model = reader.group(std::span(&parent, 1), outputs);
    ImportOptions import;
    import.custom = custom_;
    import_model(model.model, import);
    return true;
  } catch (const NeedInput&) {
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Compiles a group, or loads it from where the application has saved it.
std::shared_ptr<CompiledGroup> Provider::build(GroupModel model) {
  const auto &load = options_.load_path, &save = options_.save_path;
  if (load.empty() && save.empty()) return compile_group(std::move(model), options_, device_);
  const std::string key = group_file_key(model, options_);
  const std::size_t k = groups_built_++;
  try {
    if (const std::filesystem::path file = group_file(load, k, key); !load.empty() && std::filesystem::exists(file)) {
      auto group = load_group(file, key, options_, device_);
      log_.info("loaded a compiled group from {}", file.string());
      return group;
    } else if (save.empty()) {
      fail(ErrorKind::kIo, "load_compiled_model: there is no {}; with save_compiled_model it is compiled and saved",
           file.string());
    }
  } catch (const Error& e) {
    throw GroupFileError(e.what());
  }
  auto group = compile_group(std::move(model), options_, device_);
  const std::filesystem::path file = group_file(save, k, key);
  try {
    save_group(*group, key, file);
  } catch (const Error& e) {
    throw GroupFileError(e.what());
  }
  log_.info("saved a compiled group to {}", file.string());
  return group;
}

// Lowers every group, which is fast, and repeats without the refused nodes until all groups can be lowered.
void Provider::lower_on_trial(Partition& partition, GraphReader& reader, std::vector<Group>& groups) {
  for (bool again = true; again;) {
    again = false;
    groups = partition.groups();
    for (const Group& g : groups) {
      const std::string key = key_of(ort_, g.nodes);
      if (lowered_.count(key)) continue;
      try {
        ImportOptions import;
        import.custom = custom_;
        import_model(reader.group(g.nodes, g.outputs).model, import);
        lowered_[key] = true;
      } catch (const NeedInput& need) {
        log_.info("a group of {} nodes is compiled for each {} of '{}' at its first run: {}", g.nodes.size(),
                  need.kind == NeedInput::kRank ? "rank" : "value", need.input, need.why);
        lowered_[key] = true;
      } catch (const RefusedNode& e) {
        partition.refuse(g.index[static_cast<std::size_t>(e.index())], e.what());
        again = true;
      } catch (const Error& e) {
        for (const std::size_t k : g.index) partition.refuse(k, e.what());
        again = true;
      }
    }
  }
}

void Provider::capability(const OrtGraph* graph, OrtEpGraphSupportInfo* support) {
  GraphReader reader(ort_, graph);
  if (claim_contexts(graph, support)) return;
  if (left_to_parent(graph, reader)) return;
  Partition partition(ort_, graph, reader, *custom_);
  std::vector<Group> groups;
  lower_on_trial(partition, reader, groups);
  std::size_t claimed = 0;
  for (const Group& g : groups) {
    const std::string key = key_of(ort_, g.nodes);
    const auto start = std::chrono::steady_clock::now();
    try {
      if (!ready_.count(key)) ready_[key] = build(reader.group(g.nodes, g.outputs));
    } catch (const GroupFileError& e) {
      unusable_[key] = e.what();  // an error here would only be logged; compile() ends the session
    } catch (const Error& e) {
      log_.error("a group of {} nodes could not be compiled, so it runs on the CPU provider: {}", g.nodes.size(),
                 e.what());
      for (const std::size_t k : g.index)
        partition.refuse(k, fmt::format("its group could not be compiled ({})", e.what()));
      continue;
    }
    OrtNodeFusionOptions fusion{};
    fusion.ort_version_supported = 23;
    fusion.drop_constant_initializers = true;
    ort_.require(ort_.ep().EpGraphSupportInfo_AddNodesToFuse(support, g.nodes.data(), g.nodes.size(), &fusion));
    claimed += g.nodes.size();
    if (unusable_.count(key)) continue;
    report(ready_[key]->model->quantization());
    log_.info("compiled a group of {} nodes for {} in {:.2f} s", g.nodes.size(), device_->info().name,
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  report(partition, groups, claimed);
}

void Provider::report(const Partition& partition, const std::vector<Group>& groups, std::size_t claimed) {
  const std::vector<Unclaimed> left = partition.unclaimed();
  if (left.empty() || reported_) return;
  reported_ = true;
  log_.warn("{} of {} nodes run here, in {} groups; {} left to other providers:", claimed, claimed + left.size(),
            groups.size(), left.size());
  for (const std::string& line : by_reason(left)) log_.warn("  {}", line);
}

void Provider::report(const QuantizationReport& q) {
  if (q.quantized == 0 && q.in_float.empty()) return;
  if (options_.compile.precision == "fp16") {
    if (!q.in_float.empty())
      log_.warn("{} nodes of a group stay in float32, because their values leave the range of fp16:",
                q.in_float.size());
    for (const std::string& node : q.in_float) log_.warn("  in float32: {}", node);
    return;
  }
  const std::size_t all = static_cast<std::size_t>(q.quantized) + q.in_float.size();
  log_.info("{} of {} GEMMs and convolutions of a group run in {}", q.quantized, all, options_.compile.precision);
  if (q.in_float.empty()) return;
  log_.warn("{} of {} GEMMs and convolutions of a group stay in float32, not {}; the log lists them at level INFO",
            q.in_float.size(), all, options_.compile.precision);
  for (const std::string& product : q.in_float) log_.info("  in float32: {}", product);
}

// Claims each EPContext node as a group; returns whether there are any.
bool Provider::claim_contexts(const OrtGraph* graph, OrtEpGraphSupportInfo* support) {
  bool any = false;
  for (const OrtNode* n : ort_.nodes(graph)) {
    if (!ort_.ep_name(n).empty()) continue;
    try {
      if (!is_context(ort_, n)) continue;
    } catch (const Error& e) {
      log_.warn("{} is left to other providers: {}", describe(ort_, n), e.what());
      continue;
    }
    any = true;
    OrtNodeFusionOptions fusion{};
    fusion.ort_version_supported = 23;
    fusion.drop_constant_initializers = true;
    ort_.require(ort_.ep().EpGraphSupportInfo_AddNodesToFuse(support, &n, 1, &fusion));
  }
  return any;
}

void Provider::compile(const OrtGraph* graph, const OrtNode* fused, OrtNodeComputeInfo** compute, OrtNode** context) {
  const auto names_of = [&](const std::vector<const OrtValueInfo*>& values) {
    std::vector<std::string> out;
    for (const OrtValueInfo* v : values) out.push_back(v ? ort_.name(v) : "");
    return out;
  };
  const ContextNames names{names_of(ort_.inputs(fused)), names_of(ort_.outputs(fused))};
  const std::vector<const OrtNode*> nodes = ort_.nodes(graph);
  if (nodes.size() == 1 && is_context(ort_, nodes.front())) {
    ContextNames saved;  // names when the program was compiled; their order is the same
    try {
      auto group = load_context(ort_, nodes.front(), graph, options_, device_, saved);
      *compute = new GroupCompute(ort_, std::move(group), trace_, saved.inputs, saved.outputs);
      return;
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kDevice) throw;
      if (options_.context_rebuild.empty())
        throw Error(e.kind(), fmt::format("{}. With the option context_rebuild it would be compiled from the original "
                                          "model",
                                          e.what()));
      log_.warn("a program of the EPContext model can't be used ({}); it is recompiled from the original model",
                e.what());
    }
    *compute = new GroupCompute(ort_, build(original_of(ort_, nodes.front(), graph, options_)), trace_,
                                names_of(ort_.inputs(nodes.front())), names_of(ort_.outputs(nodes.front())));
    return;
  }
  std::shared_ptr<CompiledGroup> group;
  GraphReader reader(ort_, graph);
  if (const auto it = unusable_.find(key_of(ort_, nodes)); it != unusable_.end()) throw GroupFileError(it->second);
  if (const auto it = ready_.find(key_of(ort_, nodes)); it != ready_.end()) {
    group = it->second;
    ready_.erase(it);
  } else {
    group = build(reader.group(nodes, ort_.outputs(fused)));
  }
  if (!options_.dump_dir.empty()) {
    dump_group(*group, ort_.name(fused), options_.dump_dir, log_);
    dump_model(reader.group(nodes, ort_.outputs(fused)).model, ort_.name(fused), options_.dump_dir, log_);
  }
  warm_up(*group, options_.warm_batches, log_);
  if (options_.context_enable)
    *context = make_context_node(ort_, fused, graph, names,
                                 programs_of(*group, reader.group(nodes, ort_.outputs(fused))), options_);
  *compute = new GroupCompute(ort_, std::move(group), trace_, names.inputs, names.outputs);
}

// Targets of EPContext models. "host" becomes this machine's processor with its features.
std::vector<std::string> Provider::targets() const {
  std::vector<std::string> out;
  for (const std::string& t : options_.context_targets) out.push_back(t == "host" ? host_info().target : t);
  if (out.empty()) out.push_back(device_->info().target);
  return out;
}

// The programs of a group in an EPContext model, one per target.
std::vector<std::shared_ptr<const Program>> Provider::programs_of(const CompiledGroup& group, const GroupModel& model) {
  std::vector<std::shared_ptr<const Program>> out;
  for (const std::string& t : targets()) {
    if (t == device_->info().target) {
      const Executor* e = group.model->executor();
      if (!e)
        fail(ErrorKind::kUnsupported, "a group depends on an input's value, so it can't be compiled ahead of time");
      out.push_back(e->shared_program());
    } else {
      ModelOptions m = model_options(options_, *device_);
      m.device = "host";  // any device, because nothing runs
      if (t != host_info().target) {
        out.push_back(Model::compile_for(t, std::make_unique<NodeSource>(model.model), m));
        continue;
      }
      const Model host(std::make_unique<NodeSource>(model.model), m);
      if (!host.executor())
        fail(ErrorKind::kUnsupported, "a group depends on an input's value, so it can't be compiled ahead of time");
      out.push_back(host.executor()->shared_program());
    }
  }
  return out;
}

}  // namespace sardonyx::ep
