#include "api/pass_report.h"

#include <algorithm>
#include <map>

#include "fuse/passes.h"
#include "fuse/schedule.h"
#include "graph/text.h"

namespace sardonyx {
namespace {

bool same_remark(const Remark& a, const Remark& b) {
  return a.pass == b.pass && a.node == b.node && a.reason == b.reason && a.values == b.values;
}

}  // namespace

PassReport report_passes(Graph& graph, FuseOptions options) {
  PassReport report;
  std::map<const Graph*, std::string> last;
  const auto snapshot = [&](std::string_view pass, const Graph& g) {
    std::string text = to_string(g);
    const auto [it, is_new] = last.emplace(&g, "");
    if (it->second == text) return;
    const std::string nested = !g.parent() ? "" : g.nodes.empty() ? "empty graph" : g.nodes.front()->origin;
    it->second = text;
    report.passes.push_back({std::string(pass), nested, std::move(text)});
  };
  snapshot("import", graph);
  options.verify_passes = true;
  options.after_pass = [&](const Pass& p, const Graph& g) { snapshot(p.name, g); };
  options.remarks = [&](Remark r) {
    if (std::none_of(report.remarks.begin(), report.remarks.end(), [&](const Remark& o) { return same_remark(o, r); }))
      report.remarks.push_back(std::move(r));
  };
  fuse(graph, options);
  return report;
}

}  // namespace sardonyx
