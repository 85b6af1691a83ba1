#include "cli/inspect_passes.h"

#include <fmt/format.h>

#include "api/pass_report.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "formats/open.h"
#include "program/program_file.h"
#include "support/error.h"

namespace sardonyx::cli {
namespace {

using Json = nlohmann::ordered_json;

void add(Json& report, const PassReport& passes) {
  report["passes"] = Json::array();
  for (const PassSnapshot& s : passes.passes)
    report["passes"].push_back({{"pass", s.pass}, {"nested", s.nested}, {"text", s.text}});
  report["remarks"] = Json::array();
  for (const Remark& r : passes.remarks) {
    Json values = Json::object();
    for (const auto& [name, value] : r.values) values[name] = value;
    report["remarks"].push_back({{"pass", r.pass}, {"node", r.node}, {"reason", r.reason}, {"values", values}});
  }
}

}  // namespace

void add_passes(Json& report, const Arguments& arguments, const std::string& target) {
  const InspectArguments& asked = arguments.inspect;
  const bool wanted = asked.passes || asked.remarks;
  if (!wanted && asked.html.empty()) return;
  try {
    if (is_program_file(arguments.model.file))
      fail(ErrorKind::kInvalidArgument, "{}: {} is compiled already and has no graph; inspect the model itself",
           asked.passes ? "--passes" : "--remarks", arguments.model.file.string());
    add(report, passes_for(target, open_model(arguments.model.file), arguments.model.compile));
  } catch (const Error& e) {
    if (wanted) throw;
    report["passes_error"] = e.what();
  }
}

void print_passes(const Json& report, const Arguments& arguments) {
  if (arguments.inspect.passes)
    for (const Json& s : report["passes"]) {
      const std::string nested = s["nested"].get<std::string>();
      fmt::print("\n// {}{}\n{}", s["pass"].get<std::string>(),
                 nested.empty() ? "" : ", nested graph of " + printable(nested), s["text"].get<std::string>());
    }
  if (!arguments.inspect.remarks) return;
  fmt::print("\n");
  Table table({"pass", "node of the model", "not done, because", "values"});
  for (const Json& r : report["remarks"]) {
    std::string values;
    for (const auto& [name, value] : r["values"].items())
      values += fmt::format("{}{} {}", values.empty() ? "" : ", ", name, value.get<std::string>());
    table.add({r["pass"].get<std::string>(), printable(r["node"].get<std::string>()),
               printable(r["reason"].get<std::string>()), printable(values)});
  }
  table.print();
}

}  // namespace sardonyx::cli
