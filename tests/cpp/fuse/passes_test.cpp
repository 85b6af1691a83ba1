// The table of passes: its order, what it says, verification after each pass.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "pass_test.h"
#include "support/error.h"

namespace sardonyx {
namespace {

using testing::HasSubstr;

constexpr const char* kGraph = R"(%0 = input float32[n]
%1 = loop float32[i < n]: exp(%0[i]) @"exp"
%2 = loop float32[i < n]: sin(%1[i]) @"sin"
return %2)";

TEST(Passes, EachRowSaysWhatItDoesAndWhyItStandsThere) {
  for (const Pass& p : passes()) {
    EXPECT_FALSE(p.name.empty());
    EXPECT_TRUE(p.what.ends_with(".")) << p.name;
    EXPECT_TRUE(p.place.ends_with(".")) << p.name;
    EXPECT_TRUE(p.enabled && p.run) << p.name;
  }
}

TEST(Passes, UnknownNamesAreRefused) { EXPECT_THROW(pass_named("merge_unequal"), Error); }

TEST(Passes, AreReportedInTheirOrder) {
  FuseOptions options = any_device();
  std::vector<std::string> ran;
  options.after_pass = [&](const Pass& p, const Graph&) { ran.emplace_back(p.name); };
  const auto g = parse_graph(kGraph);
  fuse(*g, options);
  std::vector<std::string> enabled;
  for (const Pass& p : passes())
    if (p.enabled(options)) enabled.emplace_back(p.name);
  EXPECT_EQ(ran, enabled);
}

TEST(Passes, AFaultNamesPassAndNode) {
  FuseOptions options = any_device();
  options.verify_passes = true;
  options.after_pass = [](const Pass& p, const Graph& g) {
    if (p.name == "merge_equal") g.nodes[0]->outputs[0]->dtype = DType::kFloat16;  // seen after the next pass
  };
  const auto g = parse_graph(kGraph);
  try {
    fuse(*g, options);
    ADD_FAILURE() << "the fault was not found";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInternal);
    EXPECT_THAT(e.what(), HasSubstr("after pass closed_forms"));
    EXPECT_THAT(e.what(), HasSubstr("'exp'"));
    EXPECT_THAT(e.what(), HasSubstr("the body is float32, but the output float16"));
  }
}

TEST(Passes, DocumentationListsThem) {
  std::ifstream file(SARDONYX_SOURCE_DIR "/docs/passes.md");
  std::stringstream text;
  text << file.rdbuf();
  std::string table = "| pass | runs | what it does | why it stands here |\n|---|---|---|---|\n";
  for (const Pass& p : passes()) table += fmt::format("| `{}` | {} | {} | {} |\n", p.name, p.when, p.what, p.place);
  EXPECT_THAT(text.str(), HasSubstr(table)) << "docs/passes.md must contain this table";
}

// Fails the whole program, when all of it ran, if a pass has no test that it changes a graph or none that it leaves one
// as it is.
class EveryPassIsTested : public testing::Environment {
 public:
  void TearDown() override {
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    if (all.test_to_run_count() != all.total_test_count() || all.failed_test_count() > 0) return;
    for (const Pass& p : passes()) {
      const PassUse use = pass_uses()[std::string(p.name)];
      EXPECT_TRUE(use.changed) << "no test of this directory shows what the pass " << p.name << " changes";
      EXPECT_TRUE(use.unchanged) << "no test of this directory shows where the pass " << p.name << " does not apply";
    }
  }
};
[[maybe_unused]] const testing::Environment* const kEveryPass =
    testing::AddGlobalTestEnvironment(new EveryPassIsTested);

}  // namespace
}  // namespace sardonyx
