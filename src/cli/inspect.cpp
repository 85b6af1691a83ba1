// sardonyx inspect: describes the compiled model, or why it was refused.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/report.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/html_page.h"
#include "cli/inspect_passes.h"
#include "cli/model_loading.h"
#include "cli/terminal.h"
#include "custom/operators.h"
#include "formats/open.h"
#include "import/import.h"
#include "model/model.h"
#include "program/program_file.h"
#include "tensor_files/tensor_files.h"

namespace sardonyx::cli {
namespace {

using Json = nlohmann::ordered_json;

void count_operators(const model::Graph& g, std::map<std::string, int>& counts, int& nodes) {
  for (const model::Node& n : g.nodes) {
    ++nodes;
    ++counts[n.domain.empty() ? n.op_type : n.domain + "::" + n.op_type];
    for (const auto& [key, value] : n.attributes) {
      if (const auto* sub = std::get_if<model::GraphPtr>(&value)) count_operators(**sub, counts, nodes);
      if (const auto* subs = std::get_if<std::vector<model::GraphPtr>>(&value))
        for (const auto& s : *subs) count_operators(*s, counts, nodes);
    }
  }
}

Json source_json(const model::Model& m, const std::filesystem::path& file) {
  Json j;
  j["file"] = file.filename().string();
  j["ir_version"] = m.ir_version;
  j["producer"] = m.producer_name + (m.producer_version.empty() ? "" : " " + m.producer_version);
  j["opsets"] = Json::object();
  for (const auto& [domain, version] : m.opsets) j["opsets"][domain.empty() ? "ai.onnx" : domain] = version;
  std::map<std::string, int> counts;
  int nodes = 0;
  count_operators(m.graph, counts, nodes);
  j["nodes"] = nodes;
  std::vector<std::pair<std::string, int>> list(counts.begin(), counts.end());
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  j["operators"] = Json::array();
  for (const auto& [op, n] : list) j["operators"].push_back({{"operator", op}, {"count", n}});
  return j;
}

Json tensors_json(const std::vector<TensorInfo>& list) {
  Json out = Json::array();
  for (const TensorInfo& t : list) {
    out.push_back({{"name", t.name}, {"dtype", name(t.dtype)}});
    out.back()["shape"] = t.known_rank ? Json(t.shape) : Json(nullptr);
  }
  return out;
}

Json tensors_json(const std::vector<ReportTensor>& list) {
  Json out = Json::array();
  for (const ReportTensor& t : list)
    out.push_back({{"buffer", t.buffer},
                   {"name", t.name},
                   {"dtype", name(t.dtype)},
                   {"shape", t.shape},
                   {"constant", t.constant}});
  return out;
}

Json steps_json(const Program& program, const ProgramReport& r) {
  Json out = Json::array();
  for (const StepReport& s : r.steps) {
    Json j = {{"kind", name(s.kind)},
              {"name", s.name},
              {"nodes", s.nodes},
              {"depth", s.depth},
              {"reads", tensors_json(s.reads)},
              {"writes", tensors_json(s.writes)}};
    if (s.kernel >= 0) j["kernel"] = s.kernel;
    if (!s.cpu.empty()) j["cpu"] = s.cpu;
    out.push_back(std::move(j));
  }
  return out;
}

Json memory_json(const Executor& e, const Arguments& arguments) {
  std::map<std::string, std::int64_t> dims;
  std::string missing;
  for (const std::string& s : input_symbols(e.program())) {
    if (auto it = arguments.model.dims.find(s); it != arguments.model.dims.end())
      dims.insert(*it);
    else
      missing += " --dim " + s + "=N";
  }
  for (const auto& [name, size] : arguments.model.dims)
    if (!dims.count(name))
      fail(ErrorKind::kInvalidArgument, "--dim {}: no input has a dim of this name; the model's symbolic dims are: {}",
           name, fmt::join(input_symbols(e.program()), ", "));
  if (!missing.empty()) return {{"weights", e.constant_bytes()}, {"needs", "sizes of all dims:" + missing}};
  const MemoryReport m = memory_report(e, dims);
  Json j = {{"weights", m.weights}, {"inputs", m.inputs},           {"outputs", m.outputs},    {"arena", m.arena},
            {"live", m.live},       {"temporaries", m.temporaries}, {"unplanned", m.unplanned}};
  j["dims"] = Json::object();
  for (const auto& [name, size] : dims) j["dims"][name] = size;
  return j;
}

void print_tensors(const char* head, const Json& list) {
  for (const Json& t : list) {
    std::string shape;
    if (!t["shape"].is_null())
      for (const Json& d : t["shape"]) shape += (shape.empty() ? "" : ", ") + d.get<std::string>();
    fmt::print("{:<10} {} {} {}\n", head, printable(t["name"].get<std::string>()), t["dtype"].get<std::string>(),
               t["shape"].is_null() ? "of any shape" : "[" + printable(shape) + "]");
    head = "";
  }
}

void print_source(const Json& j) {
  const Json& m = j["model"];
  std::string opsets;
  if (!m.contains("nodes")) {
    fmt::print("{}: a compiled program\n", printable(m["file"].get<std::string>()));
    print_tensors("inputs", j["inputs"]);
    print_tensors("outputs", j["outputs"]);
    return;
  }
  for (const auto& [domain, version] : m["opsets"].items())
    opsets += fmt::format(", {} {}", domain, version.get<std::int64_t>());
  fmt::print("{}: {} nodes, IR version {}{}{}\n", printable(m["file"].get<std::string>()), m["nodes"].get<int>(),
             m["ir_version"].get<std::int64_t>(), printable(opsets),
             m["producer"].get<std::string>().empty() ? "" : ", from " + printable(m["producer"].get<std::string>()));
  print_tensors("inputs", j["inputs"]);
  print_tensors("outputs", j["outputs"]);
  std::string ops;
  for (const Json& o : m["operators"])
    ops += fmt::format("{}{} {}", ops.empty() ? "" : ", ", o["operator"].get<std::string>(), o["count"].get<int>());
  fmt::print("{:<10} {}\n", "operators", printable(ops));
}

void print_memory(const Json& m) {
  const auto bytes = [&](const char* key) { return human_bytes(m[key].get<double>()); };
  if (m.contains("needs")) {
    fmt::print("{:<10} weights {}; for the rest add the {}\n", "memory", bytes("weights"),
               m["needs"].get<std::string>());
    return;
  }
  std::string dims;
  for (const auto& [name, size] : m["dims"].items()) dims += fmt::format(" {}={}", name, size.get<std::int64_t>());
  fmt::print(
      "{:<10} {}weights {}, inputs {}, outputs {}, arena {} (temporaries of {} share it; {} of them live at a time)\n",
      "memory", dims.empty() ? "" : "for" + dims + ": ", bytes("weights"), bytes("inputs"), bytes("outputs"),
      bytes("arena"), bytes("temporaries"), bytes("live"));
  if (m["unplanned"].get<int>() > 0)
    fmt::print("{:<10} and {} tensors whose sizes depend on data, allocated as they come\n", "",
               m["unplanned"].get<int>());
}

// Prints the steps of a run on a GPU that need the CPU.
void print_cpu(const Json& steps) {
  const char* head = "CPU";
  for (const Json& s : steps) {
    if (!s.contains("cpu")) continue;
    std::string nodes;
    for (const Json& n : s["nodes"]) nodes += (nodes.empty() ? "" : " + ") + n.get<std::string>();
    fmt::print("{:<10} {}: {}\n", head, printable(cut(nodes, 60)), printable(s["cpu"].get<std::string>()));
    head = "";
  }
}

void print_program(const Json& j, const Arguments& arguments) {
  const Json& p = j["program"];
  const std::string target = p["target"].get<std::string>();  // "x86_64 znver4 +adx,+aes..."
  fmt::print("{:<10} {} launched per run: {} loop, {} tile, {} routine; {} different texts, {} of code for {}\n",
             "kernels", p["kernels_per_run"].get<int>(), p["launches"]["loop"].get<int>(),
             p["launches"]["tile"].get<int>(), p["launches"]["routine"].get<int>(), p["kernels"].get<int>(),
             human_bytes(p["code_bytes"].get<double>()), target.substr(0, target.find(' ', target.find(' ') + 1)));
  if (p["init_launches"].get<int>() > 0)
    fmt::print("{:<10} {} more when it is loaded, for constants\n", "", p["init_launches"].get<int>());
  print_memory(j["memory"]);
  print_cpu(p["steps"]);
  if (!arguments.inspect.kernels) return;
  fmt::print("\n");
  Table table({">#", "kind", "kernel", "writes", "nodes of the model"});
  int k = 0;
  for (const Json& s : p["steps"]) {
    std::string writes, nodes;
    for (const Json& t : s["writes"]) {
      std::string shape;
      for (const Json& d : t["shape"]) shape += (shape.empty() ? "" : ", ") + d.get<std::string>();
      writes += fmt::format("{}{} [{}]", writes.empty() ? "" : " ", t["dtype"].get<std::string>(), shape);
    }
    for (const Json& n : s["nodes"]) nodes += (nodes.empty() ? "" : " + ") + n.get<std::string>();
    table.add({std::to_string(k++),
               std::string(static_cast<std::size_t>(2 * s["depth"].get<int>()), ' ') + s["kind"].get<std::string>(),
               cut(s["name"].get<std::string>(), 24), cut(writes, 48), cut(nodes, 100)});
  }
  table.print();
}

void write_reports(const Json& j, const Arguments& arguments) {
  const auto replace = Json::error_handler_t::replace;
  if (!arguments.inspect.html.empty())
    write_text(arguments.inspect.html, page("graph.html", j.dump(-1, ' ', false, replace)));
  if (!arguments.inspect.json.empty()) write_text(arguments.inspect.json, j.dump(2, ' ', false, replace) + "\n");
}

bool wants_text(const Arguments& o) { return o.inspect.json != "-" && o.inspect.html != "-"; }

// Prints what is known of a model that was refused with `error`, then throws.
[[noreturn]] void refuse(const Arguments& arguments, const Error& error) {
  std::unique_ptr<ModelSource> source;
  try {
    source = open_model(arguments.model.file, {.allow_missing_weights = true});
  } catch (const Error&) {
    throw error;  // not a model
  }
  if (!source->nodes()) throw error;
  Json j;
  j["model"] = source_json(*source->nodes(), arguments.model.file);
  j["inputs"] = j["outputs"] = Json::array();
  j["error"] = error.what();
  j["refused"] = Json::array();
  const std::vector<Refusal> refused =
      unsupported_nodes(*source->nodes(), known_custom_operators(arguments.model.compile.custom_operators).get());
  std::map<std::string, int> reasons;
  for (const Refusal& r : refused) {
    j["refused"].push_back({{"node", r.node}, {"reason", r.reason}});
    ++reasons[r.reason];
  }
  write_reports(j, arguments);
  if (wants_text(arguments)) {
    print_source(j);
    for (const Refusal& r : refused)
      fmt::print("{:<10} {}: {}\n", &r == refused.data() ? "refused" : "", printable(r.node), r.reason);
  }
  if (refused.size() < 2) throw error;
  std::string list;
  for (const auto& [reason, n] : reasons) list += fmt::format("{}{} ({} times)", list.empty() ? "" : "; ", reason, n);
  fail(ErrorKind::kUnsupported, "{}: {} nodes are refused: {}; docs/operators.md lists what is supported",
       arguments.model.file.string(), refused.size(), list);
}

}  // namespace

void inspect_command(const Arguments& arguments) {
  Loaded loaded;
  try {
    loaded = load_model(arguments);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUnsupported && e.kind() != ErrorKind::kInvalidModel) throw;
    refuse(arguments, e);
  }
  Model& model = *loaded.model;
  std::shared_ptr<Executor> specific;
  const Executor* executor = model.executor();
  if (!executor) {  // code depends on the value or rank of an input
    specific = program_for(model, inputs_for(model, arguments), arguments.quiet);
    executor = specific.get();
  }
  const Program& program = executor->program();
  const ProgramReport r = report(program);
  Json j;
  if (is_program_file(arguments.model.file))
    j["model"]["file"] = arguments.model.file.filename().string();
  else
    j["model"] = source_json(model.nodes(), arguments.model.file);
  j["inputs"] = tensors_json(model.inputs());
  j["outputs"] = tensors_json(model.outputs());
  j["error"] = nullptr;
  j["refused"] = Json::array();
  std::map<std::string, int> launches{{"loop", 0}, {"tile", 0}, {"routine", 0}};
  for (const StepReport& s : r.steps)
    if (is_launch(s.kind)) ++launches[name(s.kind)];
  j["kernels_per_run"] = r.kernels_per_run;
  j["memory"] = memory_json(*executor, arguments);
  Json& p = j["program"];
  p["target"] = program.target;
  p["kernels_per_run"] = r.kernels_per_run;
  p["launches"] = launches;
  p["init_launches"] = r.init_launches;
  p["kernels"] = program.kernels.size();
  p["code_bytes"] = r.code_bytes;
  p["steps"] = steps_json(program, r);
  if (arguments.inspect.source || !arguments.inspect.html.empty()) {
    p["sources"] = Json::array();
    for (const KernelInfo& k : program.kernels) p["sources"].push_back(k.spec.source + k.spec.body);
  }
  add_passes(j, arguments, program.target);
  write_reports(j, arguments);
  if (!wants_text(arguments)) return;
  print_source(j);
  print_program(j, arguments);
  print_passes(j, arguments);
  if (arguments.inspect.source)
    for (const KernelInfo& k : program.kernels) fmt::print("\n// {}\n{}{}\n", k.symbol, k.spec.source, k.spec.body);
}

}  // namespace sardonyx::cli
