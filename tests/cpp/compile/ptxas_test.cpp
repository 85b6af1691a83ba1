// NVIDIA's assembler, replaced by shell scripts: which one is chosen, its arguments, and its failures.
#include "compile/ptxas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "compile/cache.h"
#include "support/error.h"
#include "support/process.h"

namespace sardonyx {
namespace {

namespace fs = std::filesystem;

const char* const kPtx = ".version 8.1\n.target sm_90a\n";

std::string version(const std::string& release) {
  return "if [ \"$1\" = --version ]; then echo 'Cuda compilation tools, release " + release + "'; exit 0; fi\n";
}

class Assembler : public testing::Test {
 protected:
  fs::path program(const std::string& name, const std::string& text, int mode = 0755) {
    const fs::path path = folder_.path() / name;
    std::ofstream(path) << "#!/bin/sh\n" << text;
    ::chmod(path.c_str(), static_cast<mode_t>(mode));
    return path;
  }
  /// Writes what a GPU's code begins with, its first argument and the PTX to its output, and a line to "calls".
  fs::path working(const std::string& release = "12.4, V12.4.131") {
    return program("ptxas", version(release) + "echo call >> " + (folder_.path() / "calls").string() +
                                "\n(printf '\\177ELF'; echo \"$1\"; cat \"$2\") > \"$4\"\n");
  }
  std::size_t calls() const {
    std::ifstream in(folder_.path() / "calls");
    return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(in), {}, '\n'));
  }
  TemporaryFolder folder_;
};

TEST_F(Assembler, IsTheFirstThatSuitsThePtxAndTheDriver) {
  const std::vector<fs::path> places = {folder_.path() / "none",
                                        program("text", version("12.4, V12.4.1"), 0644),
                                        program("old", version("11.8, V11.8.89")),
                                        program("new", version("13.0, V13.0.1")),
                                        program("silent", "exit 0\n"),
                                        program("odd", version("x.y")),
                                        program("good", version("12.9, V12.9.86")),
                                        program("later", version("12.1, V12.1.1"))};
  std::string why;
  const auto found = find_ptxas(places, 12010, 12040, why);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->program, places[6]);  // of a later minor version than the driver, whose machine code it takes
  EXPECT_EQ(found->cuda, 12090);
  EXPECT_EQ(find_ptxas(places, 12010, 13020, why)->program, places[3]);
  EXPECT_FALSE(find_ptxas(std::span(places).subspan(0, 3), 12010, 12040, why));
  EXPECT_NE(why.find("11.8"), std::string::npos) << why;
  EXPECT_FALSE(find_ptxas(std::span(places).subspan(4, 1), 12010, 12040, why));
  EXPECT_NE(why.find("version"), std::string::npos) << why;
  EXPECT_FALSE(find_ptxas({}, 12010, 12040, why));
  EXPECT_NE(why.find("installed"), std::string::npos) << why;
}

TEST_F(Assembler, IsGivenTheChipAndTheText) {
  const Ptxas p{working(), 12040, "12.4"};
  EXPECT_EQ(assemble(p, kPtx, "sm_90a"), "\177ELF-arch=sm_90a\n" + std::string(kPtx));
}

TEST_F(Assembler, FailsWithItsOwnWords) {
  const auto expect = [&](const std::string& script, const std::string& words) {
    try {
      assemble({program("ptxas", script), 12040, ""}, kPtx, "sm_90a");
      FAIL() << script;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kCompile);
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  };
  expect("echo 'ptxas fatal: no such chip' >&2; echo more; exit 255\n", "(status 255): ptxas fatal: no such chip");
  expect("exit 3\n", "it says nothing");
  expect("echo text > \"$4\"\n", "status 0");  // not a GPU's code
  expect("kill -9 $$\n", "status 137");
}

TEST_F(Assembler, KeepsWhatItMakes) {
  const PtxasSearch search{working(), "", {}};
  const PtxCard card{"sm_90a", 12080};
  CodeCache cache({folder_.path() / "cache"});
  const auto first = assemble_here(kPtx, card, &cache, search);
  ASSERT_TRUE(first);
  EXPECT_EQ(calls(), 1u);
  EXPECT_EQ(assemble_here(kPtx, card, &cache, search), first);
  EXPECT_EQ(calls(), 1u);
  EXPECT_EQ(assemble_here(kPtx, card, nullptr, search), first);
  EXPECT_EQ(calls(), 2u);
  EXPECT_NE(assemble_here(std::string(kPtx) + "//", card, &cache, search), first);
  EXPECT_EQ(calls(), 3u);
  EXPECT_TRUE(assemble_here(kPtx, {"sm_120", 12080}, &cache, search));
  EXPECT_EQ(calls(), 4u);
}

// Each in a separate process: what was found, and that it failed, is remembered.
TEST_F(Assembler, LeavesTheDriverWhatItCannotDo) {
  const PtxCard card{"sm_90a", 12070};
  const auto none = [&](const std::string& given) {
    const PtxasSearch search{given, "", {}};
    const bool made = assemble_here(kPtx, card, nullptr, search) || assemble_here(kPtx, card, nullptr, search);
    std::exit(made ? 1 : 0);
  };
  const auto once = testing::Not(testing::ContainsRegex("not used.*not used"));
  EXPECT_EXIT(none("off"), testing::ExitedWithCode(0), testing::Eq(""));
  EXPECT_EXIT(none(folder_.path() / "none"), testing::ExitedWithCode(0),
              testing::AllOf(testing::HasSubstr("none is not used"), once));
  EXPECT_EXIT(none(program("broken", version("12.1, V12.1.1") + "echo 'no memory'; exit 1\n")),
              testing::ExitedWithCode(0), testing::AllOf(testing::HasSubstr("no memory"), once));
}

TEST(Places, AreInOrder) {
  const std::vector<fs::path> places = ptxas_places({"", "relative:/a::/b/", {"/c", "relative", ""}});
  const std::vector<fs::path> expected = {"/a/ptxas", "/b/ptxas", "/c/bin/ptxas"};
  EXPECT_NE(std::search(places.begin(), places.end(), expected.begin(), expected.end()), places.end());
  for (const char* p : {"relative/ptxas", "relative/bin/ptxas"})
    EXPECT_EQ(std::count(places.begin(), places.end(), fs::path(p)), 0) << p;
  EXPECT_EQ(places.back(), "/usr/local/cuda/bin/ptxas");
  EXPECT_EQ(ptxas_places({"/mine", "/a", {"/c"}}), std::vector<fs::path>{"/mine"});
  EXPECT_TRUE(ptxas_places({"off", "/a", {"/c"}}).empty());
}

}  // namespace
}  // namespace sardonyx
