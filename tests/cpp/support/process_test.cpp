#include "support/process.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "support/error.h"

namespace sardonyx {
namespace {

namespace fs = std::filesystem;

TEST(Process, GivesStatusAndOutput) {
  const TemporaryFolder folder;
  const fs::path log = folder.path() / "log";
  EXPECT_EQ(run_program({"sh", "-c", "cat; echo out; echo err >&2; exit 7"}, log), 7);  // there is no input
  std::ostringstream text;
  text << std::ifstream(log).rdbuf();
  EXPECT_EQ(text.str(), "out\nerr\n");
  EXPECT_EQ(run_program({"sh", "-c", "kill -15 $$"}, log), 128 + 15);
  EXPECT_EQ(run_program({(folder.path() / "none").string()}, log), -1);
}

TEST(Process, FoldersGoWithTheirObject) {
  fs::path path;
  {
    const TemporaryFolder folder;
    path = folder.path();
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    std::ofstream(path / "file") << "text";
    EXPECT_NE(TemporaryFolder().path(), path);
  }
  EXPECT_FALSE(fs::exists(path));
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", "/proc", 1);
  EXPECT_THROW(TemporaryFolder(), Error);
  before ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
}

}  // namespace
}  // namespace sardonyx
