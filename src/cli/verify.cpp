// sardonyx verify: compares every output with a reference; with --bisect every value of the model.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/compare.h"
#include "cli/model_loading.h"
#include "cli/reference.h"
#include "cli/terminal.h"
#include "model/model.h"
#include "program/program_file.h"
#include "tensor_files/tensor_files.h"

namespace sardonyx::cli {
namespace {

struct Row {
  std::string name;
  std::string node;  ///< the model's node that computes it, for --bisect
  Comparison result;
};

std::string index_text(std::int64_t flat, const std::vector<std::int64_t>& dims) {
  std::vector<std::int64_t> index(dims.size());
  for (std::size_t k = dims.size(); k-- > 0;) {
    index[k] = flat % dims[k];
    flat /= dims[k];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

std::string verdict(const Comparison& c) {
  return !c.difference.empty() ? c.difference
         : c.matches           ? "ok"
                               : fmt::format("{} of {} elements differ", c.wrong, c.elements);
}

void add_row(Table& table, const Row& r) {
  const Comparison& c = r.result;
  if (!c.difference.empty()) return table.add({cut(r.name, 48), "-", "-", "-", "-", "-", verdict(c)});
  table.add({cut(r.name, 48), fmt::format("{:.2g}", c.relative), fmt::format("{:.2g}", c.max_abs),
             fmt::format("{:.4g}", c.ulp_median), fmt::format("{:.4g}", c.ulp_p99), fmt::format("{:.4g}", c.ulp_max),
             verdict(c)});
}

Table new_table(const char* what) {
  return Table({what, ">relative", ">max abs", ">ulp p50", ">ulp p99", ">ulp max", "result"});
}

void write_json(const std::string& file, const Reference& reference, const std::vector<Row>& rows) {
  if (file.empty()) return;
  nlohmann::ordered_json j;
  j["reference"] = reference.from;
  j["values"] = nlohmann::ordered_json::array();
  for (const Row& r : rows) {
    const Comparison& c = r.result;
    j["values"].push_back({{"name", r.name},
                           {"matches", c.matches},
                           {"difference", c.difference},
                           {"elements", c.elements},
                           {"wrong", c.wrong},
                           {"max_abs", c.max_abs},
                           {"relative", c.relative},
                           {"rtol", c.rtol},
                           {"atol", c.atol},
                           {"ulp", {{"p50", c.ulp_median}, {"p99", c.ulp_p99}, {"max", c.ulp_max}}}});
    if (!r.node.empty()) j["values"].back()["node"] = r.node;
  }
  write_text(file, j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

const Tensor* find(const NamedTensors& list, const std::string& name) {
  for (const auto& [n, t] : list)
    if (n == name) return &t;
  return nullptr;
}

std::string describe_first(const Row& r, const Tensor& ours) {
  const Comparison& c = r.result;
  if (!c.difference.empty()) return fmt::format("'{}' has {}", r.name, c.difference);
  const std::int64_t parts = ours.elements() ? c.elements / ours.elements() : 1;
  return fmt::format("'{}'{} is {:.9g} instead of {:.9g} ({} of {} elements differ)", r.name,
                     index_text(c.first / parts, ours.dims), c.ours, c.reference, c.wrong, c.elements);
}

NamedTensors run_ours(const Arguments& arguments, const Inputs& inputs, Loaded& loaded) {
  program_for(*loaded.model, inputs, arguments.quiet);
  std::vector<Tensor> tensors = loaded.model->run(inputs.tensors);
  const std::vector<std::string> names = loaded.model->output_names();
  NamedTensors out;
  for (std::size_t k = 0; k < tensors.size(); ++k) out.emplace_back(names[k], std::move(tensors[k]));
  return out;
}

// Values in the order in which the model computes them, with their nodes.
std::vector<std::pair<std::string, std::string>> values_in_order(const model::Model& m) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const model::Node& n : m.graph.nodes)
    for (const std::string& o : n.outputs)
      if (!o.empty()) out.emplace_back(o, n.describe());
  return out;
}

void bisect(const Arguments& arguments, const Inputs& inputs, const Tolerance& tolerance) {
  Loaded loaded = load_model(arguments, true);
  const NamedTensors ours = run_ours(arguments, inputs, loaded);
  const auto order = values_in_order(loaded.model->nodes());
  std::vector<std::string> extra;
  for (const auto& [name, node] : order) {
    bool output = false;
    for (const model::ValueInfo& v : loaded.model->nodes().graph.outputs) output |= v.name == name;
    if (!output && find(ours, name)) extra.push_back(name);
  }
  Reference reference;
  {
    ProgressLine line(!arguments.quiet);
    line.show("running ONNX Runtime");
    reference = run_onnxruntime(arguments.verify.python, arguments.model.file, inputs, extra, loaded.model->threads());
  }
  std::vector<Row> rows;
  std::size_t first = SIZE_MAX;
  for (const auto& [name, node] : order) {
    const Tensor* a = find(ours, name);
    const Tensor* r = find(reference.tensors, name);
    if (!a || !r) continue;
    rows.push_back({name, node, compare(*a, *r, tolerance)});
    if (!rows.back().result.matches && first == SIZE_MAX) first = rows.size() - 1;
  }
  write_json(arguments.verify.json, reference, rows);
  const bool text = arguments.verify.json != "-";
  if (first == SIZE_MAX) {
    if (text) fmt::print("{} values match {}\n", rows.size(), reference.from);
    return;
  }
  const Row& bad = rows[first];
  if (text) {
    // First what the node reads, then its neighbours.
    const model::Node* node = nullptr;
    for (const model::Node& n : loaded.model->nodes().graph.nodes)
      for (const std::string& o : n.outputs)
        if (o == bad.name) node = &n;
    fmt::print("first value that differs, of {}: number {}\n", rows.size(), first + 1);
    Table table = new_table("value");
    for (std::size_t k = 0; k < first; ++k)
      for (const std::string& i : node->inputs)
        if (rows[k].name == i) add_row(table, {"read: " + rows[k].name, "", rows[k].result});
    add_row(table, {"computed: " + bad.name, "", bad.result});
    std::size_t shown = 0;
    for (std::size_t k = first + 1; k < rows.size() && shown < 10; ++k, ++shown)
      add_row(table, {"then: " + rows[k].name, "", rows[k].result});
    table.print();
  }
  fail(ErrorKind::kMismatch, "{}: {} against {}; rerun with --no-fuse to see whether fusion is the cause", bad.node,
       describe_first(bad, *find(ours, bad.name)), reference.from);
}

}  // namespace

void verify_command(const Arguments& arguments) {
  Tolerance tolerance{arguments.verify.rtol, arguments.verify.atol};
  const bool folder = !arguments.verify.reference.empty();
  std::error_code ignored;
  if (folder && !std::filesystem::is_directory(arguments.verify.reference, ignored))
    fail(ErrorKind::kIo, "--reference {}: there is no such folder", arguments.verify.reference.string());
  if (folder && arguments.verify.bisect)
    fail(ErrorKind::kInvalidArgument,
         "--bisect needs every intermediate value, which a folder does not have: leave --reference out");
  if (!folder && is_program_file(arguments.model.file))
    fail(ErrorKind::kInvalidArgument,
         "{} is a compiled program, which ONNX Runtime can't run: verify the model itself, or give --reference DIR",
         arguments.model.file.string());
  if (!folder && arguments.model.file.extension() == ".tflite")
    fail(ErrorKind::kInvalidArgument, "{} is a TFLite file, which ONNX Runtime can't run: give --reference DIR",
         arguments.model.file.string());
  Loaded loaded = load_model(arguments);
  Arguments with_inputs = arguments;
  // Models without inputs have no input_0.pb.
  if (folder && arguments.input.files.empty() && !loaded.model->inputs().empty())
    with_inputs.input.files.push_back(arguments.verify.reference.string());
  const Inputs inputs = inputs_for(*loaded.model, with_inputs);
  if (arguments.verify.bisect) return bisect(arguments, inputs, tolerance);
  const NamedTensors ours = run_ours(arguments, inputs, loaded);
  Reference reference;
  {
    ProgressLine line(!arguments.quiet);
    line.show("running ONNX Runtime");
    reference =
        folder ? read_reference(arguments.verify.reference, loaded.model->output_names())
               : run_onnxruntime(arguments.verify.python, arguments.model.file, inputs, {}, loaded.model->threads());
  }
  std::vector<Row> rows;
  const Row* bad = nullptr;
  Table table = new_table("output");
  rows.reserve(ours.size());
  for (const auto& [name, t] : ours) {
    const Tensor* r = find(reference.tensors, name);
    if (!r) fail(ErrorKind::kUnsupported, "output '{}': {} gives no tensor of numbers for it", name, reference.from);
    rows.push_back({name, "", compare(t, *r, tolerance)});
    add_row(table, rows.back());
    if (!rows.back().result.matches && !bad) bad = &rows.back();
  }
  write_json(arguments.verify.json, reference, rows);
  if (arguments.verify.json != "-") {
    fmt::print("against {}\n", reference.from);
    table.print();
  }
  if (bad)
    fail(ErrorKind::kMismatch, "output {} against {}{}", describe_first(*bad, *find(ours, bad->name)), reference.from,
         folder ? "" : "; --bisect finds the first value that differs");
}

}  // namespace sardonyx::cli
