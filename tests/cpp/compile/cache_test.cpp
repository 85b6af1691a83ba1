// The cache on disk, and compile_all through it.
#include "compile/cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "compile/compiler.h"
#include "support/error.h"

namespace sardonyx {
namespace {

namespace fs = std::filesystem;

class Cache : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "sardonyx-cache-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }
  fs::path entry() const {
    for (const auto& e : fs::directory_iterator(directory_))
      if (e.path().extension() == ".sdx") return e.path();
    return {};
  }
  fs::path directory_;
};

CacheKey key_of(const std::string& text) {
  const std::string_view parts[] = {"test", text};
  return cache_key(parts);
}

CompileJob job(std::string source) { return {std::move(source), {}, host_target(), {}}; }

TEST_F(Cache, KeepsBlobsAcrossObjects) {
  const std::string blob("a\0b", 3);
  {
    CodeCache cache({directory_});
    EXPECT_FALSE(cache.get(key_of("x")));
    cache.put(key_of("x"), blob);
    cache.put(key_of("empty"), "");
  }
  CodeCache cache({directory_});
  EXPECT_TRUE(cache.contains(key_of("x")));
  EXPECT_FALSE(cache.contains(key_of("y")));
  EXPECT_EQ(cache.get(key_of("x")), blob);
  EXPECT_EQ(cache.get(key_of("empty")), "");
  EXPECT_FALSE(cache.get(key_of("y")));
  const CacheStats stats = cache.stats();
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.entries, 2u);
  EXPECT_EQ(stats.warning, "");
}

TEST_F(Cache, KeysDifferInEveryPart) {
  const SourceFile header[] = {{"h.h", "1"}}, other_text[] = {{"h.h", "2"}}, other_name[] = {{"g.h", "1"}};
  const CompileJob base{"int x;", header, host_target(), {}};
  std::vector<CompileJob> jobs(10, base);
  jobs[1].source = "int y;";
  jobs[2].headers = other_text;
  jobs[3].headers = other_name;
  jobs[4].target = parse_target("gfx942");
  jobs[5].options.opt_level = 2;
  jobs[6].options.debug_info = true;
  jobs[7].options.defines = {"A"};
  jobs[8].options.extra_cc1 = {"A"};
  jobs[9].options.kernel_language = true;
  for (std::size_t i = 0; i < jobs.size(); ++i)
    for (std::size_t j = 0; j < jobs.size(); ++j) EXPECT_EQ(cache_key(jobs[i]) == cache_key(jobs[j]), i == j) << i << j;
  EXPECT_EQ(key_of("x").hex().size(), 64u);
  const std::string_view one[] = {"ab", "c"}, two[] = {"a", "bc"};
  EXPECT_NE(cache_key(one), cache_key(two));
}

TEST_F(Cache, DamagedEntriesAreDeletedAndMissed) {
  CodeCache cache({directory_});
  const std::string blob(1000, 'x');
  const std::vector<std::function<void(const fs::path&)>> damages = {
      [](const fs::path& p) { fs::resize_file(p, 500); },
      [](const fs::path& p) { fs::resize_file(p, 0); },
      [](const fs::path& p) { fs::resize_file(p, 2000); },
      [](const fs::path& p) { std::fstream(p, std::ios::in | std::ios::out).seekp(900).put('y'); },
      [](const fs::path& p) { std::fstream(p, std::ios::in | std::ios::out).put('y'); },
      // A size near 2^64 must not be allocated.
      [](const fs::path& p) {
        std::fstream(p, std::ios::in | std::ios::out).seekp(72).write("\xff\xff\xff\xff\xff\xff\xff\xff", 8);
      },
      // Intact, but another key's.
      [this](const fs::path& p) {
        fs::remove(p);
        CodeCache other({directory_});
        other.put(key_of("other"), "z");
        fs::rename(entry(), p);
      },
  };
  for (std::size_t i = 0; i < damages.size(); ++i) {
    cache.put(key_of("x"), blob);
    ASSERT_EQ(cache.get(key_of("x")), blob);
    damages[i](entry());
    EXPECT_FALSE(cache.get(key_of("x"))) << i;
    EXPECT_EQ(cache.stats().corrupted, i + 1);
    EXPECT_EQ(cache.stats().entries, 0u) << i;
  }
}

TEST_F(Cache, EvictsWhatWasUnusedForLongest) {
  CodeCache cache({directory_, 100000});
  const std::string blob(1000, 'x');
  cache.put(key_of("kept"), blob);
  for (int i = 0; i < 300; ++i) {
    cache.put(key_of(std::to_string(i)), blob);
    EXPECT_TRUE(cache.get(key_of("kept"))) << i;
  }
  CacheStats stats = cache.stats();
  EXPECT_LE(stats.bytes, 100000u + 100000u / 16);
  EXPECT_GT(stats.bytes, 50000u);
  EXPECT_GT(stats.evicted, 150u);
  EXPECT_FALSE(cache.get(key_of("0")));
  EXPECT_TRUE(cache.get(key_of("299")));
  cache.put(key_of("huge"), std::string(200000, 'x'));
  EXPECT_FALSE(cache.get(key_of("huge")));
  // A smaller bound takes effect with the first entry that is written.
  CodeCache smaller({directory_, 20000});
  smaller.put(key_of("new"), blob);
  EXPECT_LE(smaller.stats().bytes, 20000u);
  EXPECT_TRUE(smaller.get(key_of("new")));
}

TEST_F(Cache, ClearsItsOwnFilesOnly) {
  CodeCache cache({directory_});
  std::ofstream(directory_ / "notes.txt") << "mine";
  std::ofstream(directory_ / "notes.sdx") << "mine";
  cache.put(key_of("x"), "1");
  cache.clear();
  EXPECT_EQ(cache.stats().entries, 0u);
  EXPECT_TRUE(fs::exists(directory_ / "notes.txt"));
  EXPECT_TRUE(fs::exists(directory_ / "notes.sdx"));
}

TEST_F(Cache, WorksWithoutAUsableDirectory) {
  std::ofstream(directory_ / "file") << "x";
  for (const fs::path& bad : {fs::path(), directory_ / "file", directory_ / "file" / "below", fs::path("/proc/none")}) {
    CodeCache cache({bad});
    cache.put(key_of("x"), "1");
    EXPECT_FALSE(cache.get(key_of("x")));
    EXPECT_NE(cache.stats().warning, "") << bad;
    cache.clear();
    const CompileJob jobs[] = {job("int x;")};
    EXPECT_FALSE(compile_all(jobs, 1, &cache)[0].empty());
  }
  fs::permissions(directory_, fs::perms::all);
  CodeCache open_to_all({directory_});
  EXPECT_NE(open_to_all.stats().warning.find("everybody"), std::string::npos);
}

// Root may write anywhere, so a directory that only can be read is tried as another user, in a child.
TEST_F(Cache, ReadsWhereItMayNotWrite) {
  {
    CodeCache({directory_}).put(key_of("x"), "1");
  }
  fs::permissions(directory_, fs::perms(0755));
  fs::permissions(entry(), fs::perms(0444));
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) ::_exit(10);
    if (::geteuid() != 65534) ::chmod(directory_.c_str(), 0555);
    CodeCache cache({directory_});
    cache.put(key_of("y"), "2");
    const bool fine = cache.get(key_of("x")) == "1" && !cache.get(key_of("y")) && !cache.stats().warning.empty();
    if (::geteuid() != 65534) ::chmod(directory_.c_str(), 0755);
    ::_exit(fine ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// Four processes write, read and evict the same few keys; each blob tells which key it belongs to.
TEST_F(Cache, IsSafeWithManyProcesses) {
  std::vector<pid_t> children;
  for (int c = 0; c < 4; ++c) {
    const pid_t child = ::fork();
    if (child == 0) {
      CodeCache cache({directory_, 60000});
      int hits = 0;
      for (int i = 0; i < 1500; ++i) {
        const std::string name = std::to_string((i * 7 + c * 13) % 50);
        const std::string expected = name + std::string(2000, 'a');
        if (const auto found = cache.get(key_of(name))) {
          ++hits;
          if (*found != expected) ::_exit(1);
        } else {
          cache.put(key_of(name), expected);
        }
      }
      const CacheStats stats = cache.stats();
      ::_exit(stats.corrupted != 0 || !stats.warning.empty() ? 2 : hits == 0 ? 3 : 0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  CodeCache cache({directory_, 60000});
  EXPECT_LE(cache.stats().bytes, 60000u + 4 * 60000u / 16);
  for (const auto& e : fs::directory_iterator(directory_))
    EXPECT_EQ(e.path().filename().string().find("writing-"), std::string::npos);
}

TEST_F(Cache, DefaultDirectoryFollowsTheXdgRules) {
  EXPECT_EQ(default_cache_directory("/c", "/h"), "/c/sardonyx");
  EXPECT_EQ(default_cache_directory("", "/h"), "/h/.cache/sardonyx");
  EXPECT_EQ(default_cache_directory("relative", "/h"), "/h/.cache/sardonyx");
  EXPECT_EQ(default_cache_directory("", ""), "");
}

TEST_F(Cache, CompileAllUsesIt) {
  std::vector<CompileJob> jobs;
  for (int i = 0; i < 6; ++i)
    jobs.push_back(job("extern \"C\" int f() { return " + std::to_string(i % 5) + "; }"));  // the last equals the first
  CodeCache cache({directory_});
  const auto cold = compile_all(jobs, 2, &cache);
  EXPECT_EQ(cache.stats().misses, 5u);
  EXPECT_EQ(cache.stats().stored, 5u);
  const auto warm = compile_all(jobs, 2, &cache);
  EXPECT_EQ(cache.stats().hits, 5u);
  EXPECT_EQ(cache.stats().stored, 5u);
  EXPECT_EQ(cold, warm);
  EXPECT_EQ(cold[0], cold[5]);
  EXPECT_NE(cold[0], cold[1]);
  EXPECT_EQ(compile_all(jobs, 3, nullptr), cold);  // and compilation is deterministic
  EXPECT_TRUE(compile_all({}, 2, &cache).empty());
}

TEST_F(Cache, CompileAllReportsTheFirstFailingJob) {
  std::vector<CompileJob> jobs;
  for (int i = 0; i < 8; ++i)
    jobs.push_back(job("int x" + std::to_string(i) + (i >= 3 ? " = nothing" + std::to_string(i) : "") + ";"));
  try {
    compile_all(jobs, 4, nullptr);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kCompile);
    EXPECT_NE(std::string(e.what()).find("nothing3"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace sardonyx
