// Helpers for tests of passes: graph text in, graph text out.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fuse/passes.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "graph_text/parse.h"

namespace sardonyx {

/// A device that takes every tile kernel and every epilogue, with all optional forms off.
inline FuseOptions any_device() {
  FuseOptions o;
  o.accepts_epilogue = [](const TileKernel&, std::string&) { return true; };
  o.accepts_tile = [](const Node&, std::string&) { return true; };
  return o;
}

inline std::string canonical(std::string_view text) { return to_string(*parse_graph(text)); }

/// What the tests that ran did with a pass. passes_test.cpp fails where one of these does not occur.
struct PassUse {
  bool changed = false, unchanged = false;
};
inline std::map<std::string, PassUse, std::less<>>& pass_uses() {
  static std::map<std::string, PassUse, std::less<>> uses;
  return uses;
}

/// The graph after the pass, verified.
inline std::string after_pass(std::string_view pass, std::string_view in, const FuseOptions& options) {
  const auto g = parse_graph(in);
  PassState state{*g, options, {}};
  const Pass& p = pass_named(pass);
  EXPECT_TRUE(p.enabled(options)) << "the options switch the pass off";
  p.run(state);
  std::unordered_set<const Node*> fused;
  for (const Epilogue& e : state.epilogues) fused.insert(e.loops.begin(), e.loops.end());
  EXPECT_EQ(verify(*g, fused), "");
  std::string out = canonical(to_string(*g));
  PassUse& use = pass_uses()[std::string(pass)];
  const bool changed = out != canonical(canonical(in)) || !state.epilogues.empty();
  (changed ? use.changed : use.unchanged) = true;
  return out;
}

/// Running the pass on the graph `in` gives the graph `out`.
inline void expect_pass(std::string_view pass, std::string_view in, std::string_view out,
                        const FuseOptions& options = any_device()) {
  EXPECT_EQ(after_pass(pass, in, options), canonical(canonical(out)));
}

/// The pass leaves the graph as it is.
inline void expect_unchanged(std::string_view pass, std::string_view in, const FuseOptions& options = any_device()) {
  expect_pass(pass, in, in, options);
}

/// The reasons that the pass gives for what it did not do: "origin: reason".
inline std::vector<std::string> remarks_of(std::string_view pass, std::string_view in,
                                           FuseOptions options = any_device()) {
  std::vector<std::string> found;
  options.remarks = [&](const Remark& r) { found.push_back(r.node + ": " + r.reason); };
  after_pass(pass, in, options);
  return found;
}

/// What fuse() makes of a graph: one line for each step, "loop", "tile" or "node" and the model's nodes in it.
std::vector<std::string> kernels_of(std::string_view in, const FuseOptions& options = any_device());

}  // namespace sardonyx
