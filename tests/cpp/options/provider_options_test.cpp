// Options of the provider: every option of AMD's providers is accepted; others are errors.
#include "options/provider_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "options/compile_options.h"
#include "options/provider_variables.h"
#include "support/error.h"

namespace sardonyx {
namespace {

using ::testing::HasSubstr;

ProviderOptions read(const std::map<std::string, std::string>& given, std::vector<std::string>* notes = nullptr) {
  std::map<std::string, std::string> config;
  for (const auto& [key, value] : given) config["ep.amdgpuexecutionprovider." + key] = value;
  ProviderRemarks said;
  const ProviderOptions p = read_provider_options(config, {}, {}, said);
  if (notes) *notes = said.notes;
  return p;
}

TEST(ProviderOptions, NamesOfAllThreeProviders) {
  for (const char* name : {"device_id",
                           "disable_caching",
                           "force_recompile",
                           "exhaustive_tune",
                           "cache_dir",
                           "profile",
                           "mlss_use_specific_ops",
                           "cpu_control_flow",
                           "model_arch",
                           "model_fw",
                           "hip_graph_enable",
                           "static_pad_seq",
                           "static_pad_seq_len",
                           "static_pad_inputs",
                           "static_pad_outputs",
                           "migraphx_fp16_enable",
                           "migraphx_bf16_enable",
                           "migraphx_fp8_enable",
                           "migraphx_int8_enable",
                           "migraphx_int8_calibration_table_name",
                           "migraphx_int8_use_native_calibration_table",
                           "migraphx_exhaustive_tune",
                           "migraphx_mem_limit",
                           "migraphx_arena_extend_strategy",
                           "migraphx_model_cache_dir",
                           "migraphx_max_dynamic_batch",
                           "migraphx_compile_batches",
                           "migraphx_hip_graph_enable",
                           "migraphx_save_compiled_model",
                           "migraphx_save_compiled_path",
                           "migraphx_load_compiled_model",
                           "migraphx_load_compiled_path",
                           "enable_hip_graph",
                           "has_user_compute_stream",
                           "tunable_op_enable",
                           "tunable_op_tuning_enable",
                           "user_compute_stream",
                           "do_copy_in_default_stream",
                           "gpu_mem_limit",
                           "arena_extend_strategy",
                           "gpu_external_alloc",
                           "gpu_external_free",
                           "gpu_external_empty_cache",
                           "migraphx_external_alloc",
                           "migraphx_external_free",
                           "migraphx_external_empty_cache"})
    EXPECT_NO_THROW(read({{name, "0"}})) << name;
}

// A text that is not the option's default.
std::string other_value(const OptionInfo& o) {
  const std::vector<std::string_view> values = allowed_values(o);
  if (values.size() > 1) return std::string(values[1]);
  if (std::holds_alternative<bool Options::*>(o.field)) return option_text({}, o) == "1" ? "0" : "1";
  return std::holds_alternative<int Options::*>(o.field) ? "7" : "/somewhere";
}

TEST(ProviderOptions, RowsOfTheCompilersTableSetTheirFields) {
  int rows = 0;
  for (const OptionInfo& o : kOptions) {
    if (o.provider.empty()) continue;
    ++rows;
    std::vector<std::string_view> names = {o.provider};
    names.insert(names.end(), o.migraphx.begin(), o.migraphx.end());
    names.insert(names.end(), o.rocm.begin(), o.rocm.end());
    for (const std::string_view name : names) {
      if (name.empty()) continue;
      std::map<std::string, std::string> given = {{std::string(name), other_value(o)}};
      if (o.name == "calibration_table") given["int8"] = "1";  // other precisions have no use for one
      EXPECT_EQ(option_text(read(given).compile, o), other_value(o)) << name;
    }
  }
  EXPECT_GE(rows, 6);
}

TEST(ProviderOptions, HaveTheirEffect) {
  const ProviderOptions p = read({{"migraphx_bf16_enable", "True"},
                                  {"migraphx_mem_limit", "1000"},
                                  {"migraphx_arena_extend_strategy", "kSameAsRequested"},
                                  {"migraphx_compile_batches", "1,4;8"},
                                  {"migraphx_max_dynamic_batch", "16"},
                                  {"user_compute_stream", "0x10"},
                                  {"gpu_external_alloc", "16"},
                                  {"gpu_external_free", "32"},
                                  {"cache_dir", "/somewhere"},
                                  {"device_id", "1"}});
  EXPECT_EQ(p.compile.precision, "bf16");
  EXPECT_EQ(p.gpu_mem_limit, 1000u);
  EXPECT_TRUE(p.same_as_requested);
  EXPECT_THAT(p.warm_batches, ::testing::UnorderedElementsAre(1, 4, 8, 16));
  EXPECT_EQ(p.user_compute_stream, 16u);
  EXPECT_EQ(p.external.allocate, 16u);
  EXPECT_EQ(p.compile.cache_dir, "/somewhere");
  EXPECT_EQ(p.device_id, 1);
  EXPECT_TRUE(read({{"cache_dir", "/somewhere"}, {"disable_caching", "1"}}).compile.cache_dir.empty());
  EXPECT_EQ(read({{"gpu_mem_limit", "18446744073709551615"}}).gpu_mem_limit, 0u);  // what ROCm's default says
}

// What is not a field of Options.
std::string text_of(const ProviderOptions& p) {
  std::string out =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", p.device, p.device_id, p.gpu_mem_limit,
                  p.same_as_requested, p.external.allocate, p.external.free, p.external.empty_cache,
                  p.user_compute_stream, p.exhaustive_tune, p.use_tuned, p.calibration_dir.string(),
                  p.save_path.string(), p.load_path.string(), p.force_recompile, fmt::join(p.warm_batches, ","),
                  p.dump_dir.string(), p.profile_file.string(), p.context_rebuild, fmt::join(p.context_targets, ","));
  for (const OptionInfo& o : kOptions) out += " " + option_text(p.compile, o);
  return out;
}

// A value that changes something, and what the option needs beside it.
std::map<std::string, std::string> changing(const std::string& name, const std::string& as) {
  const std::map<std::string, std::string> values = {{"device", "host"},
                                                     {"device_id", "3"},
                                                     {"gpu_mem_limit", "1000"},
                                                     {"arena_extend_strategy", "1"},
                                                     {"gpu_external_alloc", "8"},
                                                     {"gpu_external_free", "8"},
                                                     {"gpu_external_empty_cache", "8"},
                                                     {"user_compute_stream", "8"},
                                                     {"calibration_dir", "/a"},
                                                     {"save_compiled_path", "/a"},
                                                     {"load_compiled_path", "/a"},
                                                     {"compile_batches", "4"},
                                                     {"max_dynamic_batch", "4"},
                                                     {"dump_dir", "/a"},
                                                     {"profile", "/a"},
                                                     {"context_rebuild", "/a"},
                                                     {"context_targets", "gfx942"}};
  const auto value = values.find(name);
  std::map<std::string, std::string> given = {{as, value == values.end() ? "1" : value->second}};
  if (name == "gpu_external_alloc") given["gpu_external_free"] = "16";
  if (name == "gpu_external_free") given["gpu_external_alloc"] = "16";
  if (name == "save_compiled_path") given["save_compiled_model"] = "1";
  if (name == "load_compiled_path") given["load_compiled_model"] = "1";
  if (name == "tunable_op_tuning_enable") given["tunable_op_enable"] = "1";
  if (name == "disable_caching") given["cache_dir"] = "/b";
  return given;
}

TEST(ProviderOptions, EveryNameOfAnOptionSetsIt) {
  for (const ProviderOption& o : provider_options()) {
    const std::string name(o.name);
    std::map<std::string, std::string> given = changing(name, name), without = given;
    const std::string set = text_of(read(given));
    without.erase(name);
    if (name != "gpu_external_alloc" && name != "gpu_external_free") EXPECT_NE(set, text_of(read(without))) << name;
    for (const auto& names : {std::vector<std::string_view>(o.migraphx.begin(), o.migraphx.end()),
                              std::vector<std::string_view>(o.rocm.begin(), o.rocm.end())})
      for (const std::string_view other : names)
        if (!other.empty()) EXPECT_EQ(text_of(read(changing(name, std::string(other)))), set) << other;
  }
}

TEST(ProviderOptions, AcceptedOnesSayWhy) {
  for (const IgnoredOption& o : ignored_provider_options()) {
    std::vector<std::string> notes;
    EXPECT_EQ(text_of(read({{std::string(o.name), "1"}}, &notes)), text_of(read({}))) << o.name;
    ASSERT_EQ(notes.size(), 1u) << o.name;
    EXPECT_EQ(notes[0], fmt::format("option {} is accepted, and not needed: {}", o.name, o.why));
  }
}

TEST(ProviderOptions, UnknownOnesAreErrorsThatNameTheNearest) {
  try {
    read({{"migraphx_fp16_enabel", "1"}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
    EXPECT_THAT(e.what(), HasSubstr("'migraphx_fp16_enable'"));
  }
  EXPECT_THROW(read({{"migraphx_fp16_enable", "1"}, {"migraphx_bf16_enable", "1"}}), Error);
  EXPECT_THROW(read({{"migraphx_int8_enable", "2"}}), Error);
}

TEST(ProviderOptions, CalibrationTables) {
  EXPECT_EQ(read({{"migraphx_int8_enable", "1"}}).compile.precision, "int8");
  const ProviderOptions p = read({{"migraphx_fp8_enable", "True"},
                                  {"migraphx_int8_calibration_table_name", "calibration.flatbuffers"},
                                  {"migraphx_model_cache_dir", "/nowhere"}});
  EXPECT_EQ(p.compile.precision, "fp8");
  EXPECT_EQ(p.compile.calibration_table, "/nowhere/calibration.flatbuffers");  // where AMD's providers look for it
  std::vector<std::string> notes;
  EXPECT_TRUE(read({{"calibration_table", "/a/table"}}, &notes).compile.calibration_table.empty());
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes[0], HasSubstr("int8, fp8 and fp16"));
}

TEST(ProviderOptions, NamesOfEveryPublishedVersion) {
  for (const char* name :
       {"trt_fp16_enable", "migx_fp8_enable", "migx_int8_enable", "migx_int8_use_native_calibration_table",
        "migx_save_compiled_model", "migx_save_model_name", "migx_load_compiled_model", "migx_load_model_name",
        "migx_exhaustive_tune", "migx_mem_limit", "migx_arena_extend_strategy", "migx_external_alloc",
        "migx_external_free", "migx_external_empty_cache", "migraphx_save_model_name", "migraphx_load_model_name",
        "migraphx_max_compiled_models", "cudnn_conv_algo_search", "default_memory_arena_cfg"})
    EXPECT_NO_THROW(read({{name, "0"}})) << name;
  EXPECT_EQ(read({{"trt_fp16_enable", "1"}}).compile.precision, "fp16");
}

TEST(ProviderOptions, NothingIsTimedWithTuningOff) {
  const auto tunes = [](const std::map<std::string, std::string>& given) { return read(given).exhaustive_tune; };
  EXPECT_TRUE(tunes({{"exhaustive_tune", "1"}}));
  EXPECT_TRUE(tunes({{"tunable_op_enable", "1"}, {"tunable_op_tuning_enable", "1"}}));
  EXPECT_FALSE(tunes({{"tunable_op_enable", "1"}}));
  EXPECT_TRUE(read({{"tunable_op_enable", "1"}}).use_tuned);
  EXPECT_FALSE(tunes({{"tunable_op_tuning_enable", "1"}}));
  EXPECT_FALSE(tunes({{"exhaustive_tune", "1"}, {"tunable_op_tuning_enable", "0"}}));
  EXPECT_FALSE(
      tunes({{"migraphx_exhaustive_tune", "1"}, {"tunable_op_enable", "1"}, {"tunable_op_tuning_enable", "0"}}));
}

ProviderOptions read_both(const std::map<std::string, std::string>& given, std::vector<const char*> environment,
                          ProviderRemarks& remarks) {
  environment.push_back(nullptr);
  std::map<std::string, std::string> config;
  for (const auto& [key, value] : given) config["ep.amdgpuexecutionprovider." + key] = value;
  return read_provider_options(config, migraphx_variables(environment.data()), {}, remarks);
}

TEST(ProviderVariables, OptionsWin) {
  ProviderRemarks r;
  EXPECT_EQ(read_both({}, {"ORT_MIGRAPHX_FP16_ENABLE=1", "HOME=/"}, r).compile.precision, "fp16");
  EXPECT_EQ(read_both({}, {"ORT_MIGRAPHX_FP16_ENABLE="}, r).compile.precision, "fp32");
  EXPECT_TRUE(r.notes.empty() && r.warnings.empty());
  EXPECT_EQ(read_both({{"migraphx_fp16_enable", "0"}}, {"ORT_MIGRAPHX_FP16_ENABLE=1"}, r).compile.precision, "fp32");
  ASSERT_EQ(r.notes.size(), 1u);
  EXPECT_THAT(r.notes[0], HasSubstr("ORT_MIGRAPHX_FP16_ENABLE has no effect: option fp16 is given"));
  EXPECT_EQ(read_both({{"bf16", "1"}}, {"ORT_MIGRAPHX_FP16_ENABLE=1"}, r).compile.precision, "bf16");
  EXPECT_EQ(read_both({{"precision", "fp32"}}, {"ORT_MIGRAPHX_FP16_ENABLE=1"}, r).compile.precision, "fp32");
  EXPECT_EQ(read_both({{"fp16", "0"}}, {"ORT_MIGRAPHX_BF16_ENABLE=1"}, r).compile.precision, "bf16");
  EXPECT_FALSE(read_both({}, {"MIGRAPHX_DISABLE_POINTWISE_FUSION=1"}, r).compile.fuse);
  EXPECT_EQ(read_both({}, {"MIGRAPHX_GPU_COMPILE_PARALLEL=3"}, r).compile.threads, 3);
  EXPECT_TRUE(r.warnings.empty());
}

// Also that a variable without effect has none.
TEST(ProviderVariables, EachSetsItsOption) {
  for (const ProviderVariable& v : provider_variables()) {
    const std::string option(v.option);
    if (option.empty() || v.inverted) continue;
    std::map<std::string, std::string> given = changing(option, option);
    if (option == "cache_dir" || option == "calibration_table") given[option] = "/a";
    if (option == "calibration_table") given["fp16"] = "1";
    if (option == "threads") given[option] = "3";
    if (option == "hip_graph_enable") given[option] = "0";
    const std::string variable = fmt::format("{}={}", v.name, given[option]), set = text_of(read(given));
    given.erase(option);
    EXPECT_NE(text_of(read(given)), set) << v.name;
    ProviderRemarks r;
    EXPECT_EQ(text_of(read_both(given, {variable.c_str()}, r)), set) << v.name;
  }
}

TEST(ProviderVariables, EachHasAnEffectOrAReason) {
  std::vector<std::string> names;
  for (const ProviderVariable& v : provider_variables()) {
    EXPECT_NE(v.option.empty(), v.why.empty()) << v.name;
    names.emplace_back(v.name);
    ProviderRemarks r;
    const std::string given = fmt::format("{}=1", v.name);
    EXPECT_NO_THROW(read_both({}, {given.c_str()}, r)) << v.name;
    EXPECT_TRUE(r.warnings.empty()) << v.name;
    if (v.option.empty()) {
      EXPECT_EQ(text_of(read_both({}, {given.c_str()}, r)), text_of(read({}))) << v.name;
      ASSERT_EQ(r.notes.size(), 2u) << v.name;
      EXPECT_THAT(r.notes[0], HasSubstr(v.why));
    }
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  ProviderRemarks r;
  read_both({}, {"ORT_MIGRAPHX_EXAUSTIVE_TUNE=1", "MIGRAPHXY=1"}, r);
  ASSERT_EQ(r.warnings.size(), 1u);
  EXPECT_THAT(r.warnings[0], HasSubstr("did you mean ORT_MIGRAPHX_EXHAUSTIVE_TUNE?"));
}

}  // namespace
}  // namespace sardonyx
