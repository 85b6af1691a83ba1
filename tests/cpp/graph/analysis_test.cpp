// What is known of graphs.
#include "graph/analysis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "graph_text/parse.h"

namespace sardonyx {
namespace {

/// For each node that is not an input: c if it is computed once, when the program is loaded, else r.
std::string computed(const std::string& text) {
  const std::unique_ptr<Graph> g = parse_graph(text);
  const auto constants = constant_nodes(*g);
  std::string out;
  for (const auto& n : g->nodes) out += constants.count(n.get()) ? 'c' : 'r';
  return out;
}

TEST(ConstantNodes, DependOnConstantsOnly) {
  EXPECT_EQ(computed(R"(%0 = input float32[n, 4]
%1 = constant float32[4] {...}
%2 = loop float32[i < 4]: tanh(%1[i])
%3 = loop float32[i < n, j < 4]: %0[i, j] + %2[j]
%4 = loop float32[i < n]: %2[i]
return %3, %4)"),
            "ccrr");
}

TEST(ConstantNodes, WithoutInputsOnlyWhereARoutineReadsThem) {
  const std::string routine = R"(%1 = constant float32[4] {...}
%2, %3 = routine "sort" float32[8], int64[8]: %0 {params = [0]}
return %2)";
  EXPECT_EQ(computed("%0 = loop float32[i < 8]: float32(i)\n" + routine), "ccc");
  // Too large to keep, of an unknown size, different each time.
  EXPECT_EQ(computed("%0 = loop float32[i < 8, j < 1048576]: float32(i)\n" + routine), "rcr");
  EXPECT_EQ(computed("%9 = input float32[n]\n%0 = loop float32[i < n]: float32(i)\n" + routine), "rcr");
  EXPECT_EQ(computed("%9 = input float32[n]\n%0 = loop float32[i < 8]: float32(i + n)\n" + routine), "rcr");
  EXPECT_EQ(computed("%0 = loop float32[i < 8]: float32(i)\n%1 = loop float32[i < 8]: %0[i] * 2.0\nreturn %1"), "rr");
}

}  // namespace
}  // namespace sardonyx
