// The table of options, and what reads it.
#include "options/compile_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "options/parse.h"

namespace sardonyx {
namespace {

using ::testing::HasSubstr;

std::string refusal(const char* name, const char* text) {
  Options o;
  try {
    set_option(o, *find_option(name), "--" + std::string(name), text);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
    return e.what();
  }
  return "";
}

TEST(CompileOptions, RowsAreComplete) {
  std::set<std::string_view> names;
  for (const OptionInfo& o : kOptions) {
    for (const std::string_view n : {o.name, o.flag, o.provider}) {
      if (n.empty() || n == o.name) continue;
      EXPECT_TRUE(names.insert(n).second || n == o.provider) << n;
    }
    EXPECT_TRUE(names.insert(o.name).second || o.name == o.provider) << o.name;
    EXPECT_FALSE(o.help.empty() || o.help.ends_with(".")) << o.name;
    EXPECT_TRUE(o.details.empty() || o.details.ends_with(".")) << o.name;
    EXPECT_TRUE(is_default(Options{}, o)) << o.name;
    EXPECT_TRUE(o.environment.empty() || !o.flag.empty()) << o.name << ": only commands read the environment";
    const std::vector<std::string_view> values = allowed_values(o);
    if (values.empty()) continue;
    EXPECT_EQ(values.front(), option_text({}, o)) << o.name << ": the default comes first";
  }
  EXPECT_NO_THROW(check_values(Options{}));
}

TEST(CompileOptions, TextsSetFields) {
  Options o;
  const auto set = [&](const char* name, const char* text) { set_option(o, *find_option(name), name, text); };
  set("precision", "bf16");
  set("threads", "3");
  set("fuse", "off");
  set("cache_dir", "/a/b");
  set("device_memory_limit", "0x10");
  set("dims", "batch=4");
  set("dims", "a=b=7");
  EXPECT_EQ(o.precision, "bf16");
  EXPECT_EQ(o.threads, 3);
  EXPECT_FALSE(o.fuse);
  EXPECT_EQ(o.cache_dir, "/a/b");
  EXPECT_EQ(o.device_memory_limit, 16U);
  EXPECT_EQ(o.dims, (std::map<std::string, std::int64_t>{{"batch", 4}, {"a=b", 7}}));
  EXPECT_EQ(option_text(o, *find_option("dims")), "a=b=7,batch=4");
  EXPECT_FALSE(is_default(o, *find_option("fuse")));
  EXPECT_EQ(find_option("no_such_option"), nullptr);
}

TEST(CompileOptions, WrongTextsAreRefused) {
  EXPECT_THAT(refusal("precision", "fp17"), HasSubstr("--precision: 'fp17' is none of fp32, fp16, bf16, int8, fp8"));
  EXPECT_THAT(refusal("threads", "many"), HasSubstr("--threads: 'many' is not a number that fits"));
  EXPECT_THAT(refusal("threads", "4097"), HasSubstr("--threads is 4097; it must be 0 (all cores) or at most 4096"));
  EXPECT_THAT(refusal("fuse", "maybe"), HasSubstr("neither true nor false"));
  EXPECT_THAT(refusal("device_memory_limit", "-1"), HasSubstr("not a number that fits"));
  for (const char* dim : {"batch", "=4", "batch=-1", "batch=4x", "batch="})
    EXPECT_THAT(refusal("dims", dim), HasSubstr("give a name and a size, as in --dims batch=4")) << dim;
}

TEST(CompileOptions, ChecksCoverFieldsThatProgramsSet) {
  Options o;
  o.threads = -1;
  EXPECT_THROW(check_values(o), Error);
  o.threads = 4096;
  EXPECT_NO_THROW(check_values(o));
  o.tuning = "on";
  EXPECT_THROW(check_values(o), Error);
}

TEST(CompileOptions, OptionsForCompilingAreKnown) {
  Options o;
  o.threads = 2;
  o.cache_dir = "/a";
  o.graphs = false;
  EXPECT_EQ(option_for_compiling(o), nullptr);
  o.fuse = false;
  ASSERT_NE(option_for_compiling(o), nullptr);
  EXPECT_EQ(option_for_compiling(o)->name, "fuse");
}

TEST(CompileOptions, SettingsAreThoseThatChangeTheProgram) {
  Options a, b;
  b.cache_dir = "/elsewhere";
  EXPECT_EQ(settings_text(a), settings_text(b));
  b.graphs = false;
  EXPECT_NE(settings_text(a), settings_text(b));
}

TEST(NearestName, SmallestEditDistance) {
  EXPECT_EQ(nearest_name("presicion", {"device", "precision", "profile"}), "precision");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace sardonyx
