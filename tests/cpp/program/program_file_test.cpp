// Program files: writing, mapping, damaged files, and files of other machines.
#include "program/program_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "compile/cache.h"
#include "compile/compiler.h"
#include "example.h"
#include "support/error.h"

namespace sardonyx {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ProgramFile : public testing::Test {
 protected:
  ProgramFile() {
    folder_ = fs::temp_directory_path() / ("sardonyx-program-test-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    path_ = folder_ / "model.sdx";
    program_ = example_program();
    program_->target = host_target().arch;
  }
  ~ProgramFile() override { fs::remove_all(folder_); }

  std::string saved() {
    save_program(*program_, path_);
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  /// In memory: sweeps over files would take the disk's time.
  static std::shared_ptr<Program> parse(const std::string& bytes) {
    std::byte* at = nullptr;
    const Data copy = make_data(bytes.size(), &at);
    std::memcpy(at, bytes.data(), bytes.size());
    return parse_program({copy.bytes, copy.size}, copy.owner);
  }

  /// The message of the error that loading `bytes` gives, or "".
  std::string refusal(const std::string& bytes, ErrorKind kind) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    try {
      load_program(path_);
      return "";
    } catch (const Error& e) {
      EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << e.what();
      EXPECT_THAT(e.what(), HasSubstr(path_.string()));
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      return e.what();
    }
  }

  fs::path folder_, path_;
  std::shared_ptr<Program> program_;
};

TEST_F(ProgramFile, ConstantsStayInTheFileAtMultiplesOf64) {
  saved();
  const auto p = load_program(path_, 4);
  ASSERT_EQ(p->constants.size(), 2u);
  for (std::size_t k = 0; k < 2; ++k) {
    ASSERT_EQ(p->constants[k].size, program_->constants[k].size);
    EXPECT_EQ(std::memcmp(p->constants[k].bytes, program_->constants[k].bytes, p->constants[k].size), 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p->constants[k].bytes) % 64, 0u);
  }
  EXPECT_EQ(p->constants[0].owner, p->constants[1].owner);
  EXPECT_EQ(p->target, program_->target);
}

TEST_F(ProgramFile, SavingReplacesAFileThatIsInUse) {
  const std::string before = saved();
  const auto p = load_program(path_);
  program_->main.outputs.pop_back();
  program_->output_names.pop_back();
  EXPECT_NE(saved(), before);
  EXPECT_EQ(static_cast<int>(p->constants[1].bytes[4]), 4);  // of the old file
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "no temporary files are left";
}

TEST_F(ProgramFile, EveryDamageIsFound) {
  const std::string whole = saved();
  // Padding is not covered: nothing depends on it.
  std::size_t harmless = 0;
  for (std::size_t k = 0; k < whole.size(); ++k) {
    std::string bytes = whole;
    bytes[k] = static_cast<char>(bytes[k] ^ 0x10);
    try {
      parse(bytes);
      EXPECT_EQ(whole[k], 0) << "byte " << k;
      ++harmless;
    } catch (const Error& e) {
      EXPECT_TRUE(e.kind() == ErrorKind::kInvalidModel || e.kind() == ErrorKind::kUnsupported) << e.what();
    }
  }
  EXPECT_LT(harmless, 256u);
}

TEST_F(ProgramFile, EveryTruncationIsFound) {
  const std::string whole = saved();
  for (std::size_t k = 0; k < whole.size(); ++k) EXPECT_THROW(parse(whole.substr(0, k)), Error) << k;
  EXPECT_THAT(refusal(whole.substr(0, whole.size() / 2), ErrorKind::kInvalidModel), HasSubstr("save it again"));
  EXPECT_THAT(refusal(whole + "x", ErrorKind::kInvalidModel), HasSubstr("save it again"));
}

// Numbers in the header and in the table of constants that are wrong though the checksum is right.
TEST_F(ProgramFile, WrongNumbersUnderARightChecksum) {
  const std::string whole = saved();
  const auto field = [](std::string& bytes, std::size_t at) -> std::uint64_t& {
    return *reinterpret_cast<std::uint64_t*>(bytes.data() + at);
  };
  constexpr std::size_t kTarget = 32, kStructure = 40, kConstants = 48, kChecksum = 64, kHeader = 128;
  std::string bytes = whole;
  const std::size_t table = kHeader + field(bytes, kTarget) + field(bytes, kStructure),
                    end = table + 48 * field(bytes, kConstants);
  ASSERT_EQ(field(bytes, kConstants), 2u);
  const auto seal = [&](std::string& b) {
    std::fill_n(b.begin() + kChecksum, 32, '\0');
    const std::string_view all = b, parts[] = {"program", all.substr(0, kHeader), all.substr(kHeader, end - kHeader)};
    const CacheKey key = cache_key(parts);
    std::copy(key.bytes.begin(), key.bytes.end(), b.begin() + kChecksum);
  };
  seal(bytes);
  ASSERT_EQ(bytes, whole) << "this test seals as save_program does";
  for (const std::size_t at : {kTarget, kStructure, kConstants, table, table + 8, table + 48})
    for (const std::uint64_t value : {std::uint64_t{1}, std::uint64_t{37}, std::uint64_t{1} << 40, UINT64_MAX - 8,
                                      UINT64_MAX / 48 + 1, UINT64_MAX}) {
      bytes = whole;
      // The table is read with memcpy and need not be aligned.
      std::memcpy(bytes.data() + at, &value, sizeof value);
      seal(bytes);
      EXPECT_THROW(parse(bytes), Error) << at << " " << value;
    }
}

TEST_F(ProgramFile, OtherFiles) {
  EXPECT_THAT(refusal("", ErrorKind::kInvalidModel), HasSubstr("not a program"));
  EXPECT_THAT(refusal("hello", ErrorKind::kInvalidModel), HasSubstr("not a program"));
  fs::remove(path_);
  try {
    load_program(path_);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kIo);
    EXPECT_THAT(e.what(), HasSubstr("model.sdx"));
  }
  try {
    save_program(*program_, folder_ / "none" / "model.sdx");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kIo);
  }
}

TEST_F(ProgramFile, AnotherVersionIsNamed) {
  std::string bytes = saved();
  const std::size_t at = bytes.find('0', 12);  // the first letter of "0.1.0"
  bytes[at] = '7';
  EXPECT_THAT(refusal(bytes, ErrorKind::kUnsupported),
              testing::AllOf(HasSubstr("Sardonyx 7."), HasSubstr("compile the model")));
  bytes[at] = '\n';
  EXPECT_THAT(refusal(bytes, ErrorKind::kUnsupported), HasSubstr("Sardonyx ?"));
}

TEST_F(ProgramFile, AnotherMachineIsNamed) {
  program_->target = "s390x z15 +vector";
  EXPECT_THAT(refusal(saved(), ErrorKind::kUnsupported),
              testing::AllOf(HasSubstr("s390x"), HasSubstr("compile the model on this machine")));
  program_->target = host_target().arch + ",+antigravity";
  EXPECT_THAT(refusal(saved(), ErrorKind::kUnsupported), HasSubstr("antigravity"));
  program_->target = "x86\n64";
  EXPECT_THAT(refusal(saved(), ErrorKind::kInvalidModel), HasSubstr("damaged"));
}

TEST_F(ProgramFile, ProgramsForSeveralTargetsShareConstants) {
  const std::string one = saved();
  std::vector<std::shared_ptr<const Program>> all;
  for (const char* target : {"gfx942", "sm_80", "gfx1100"}) {
    all.push_back(example_program());
    const_cast<Program&>(*all.back()).target = target;
  }
  all.push_back(program_);
  save_programs(all, path_);
  EXPECT_EQ(program_targets(path_), (std::vector<std::string>{"gfx942", "sm_80", "gfx1100", host_target().arch}));
  EXPECT_EQ(load_program(path_)->target, host_target().arch);
  EXPECT_EQ(load_program(path_, 1, "gfx1100")->target, "gfx1100");
  EXPECT_EQ(load_program(path_, 1, "sm_90a")->target, "sm_80");  // PTX runs on later GPUs
  const auto p = load_program(path_, 1, "gfx942");
  ASSERT_EQ(p->constants.size(), program_->constants.size());
  for (std::size_t k = 0; k < p->constants.size(); ++k)
    EXPECT_EQ(std::memcmp(p->constants[k].bytes, program_->constants[k].bytes, p->constants[k].size), 0);
  try {
    load_program(path_, 1, "gfx90a");
    ADD_FAILURE() << "another card's program was loaded";
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(ErrorKind::kUnsupported));
    EXPECT_THAT(e.what(), testing::AllOf(HasSubstr("gfx942, sm_80, gfx1100"), HasSubstr("gfx90a")));
  }
  all.push_back(program_);
  EXPECT_THROW(save_programs(all, path_), Error);
  EXPECT_THROW(save_programs({}, path_), Error);
}

// Each byte of the first two programs' parts matters.
TEST_F(ProgramFile, DamageInAnyProgramIsFound) {
  auto other = example_program();
  other->target = "gfx942";
  save_programs({program_, other}, path_);
  std::ifstream in(path_, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  const std::size_t second = bytes.find("SDXPROG", 8);
  ASSERT_NE(second, std::string::npos);
  for (std::size_t at = 0; at < second + 400; at += 3) {
    if (at >= 8 && at < 32) continue;  // another version's
    std::string b = bytes;
    b[at] = static_cast<char>(b[at] ^ 0x11);
    if (at >= second - 64 && at < second) continue;  // zeros between the programs
    EXPECT_THROW(parse(b), Error) << at;
  }
}

TEST(Targets, FeaturesMustBeThere) {
  EXPECT_EQ(why_not_on("x86_64 znver4 +avx2,+sse4a", "x86_64 znver4 +avx2,+sse4a"), "");
  EXPECT_EQ(why_not_on("x86_64 haswell +avx2,-avx512f", "x86_64 znver4 +avx2,+avx512f"), "");
  EXPECT_THAT(why_not_on("x86_64 znver4 +avx2,+avx512f", "x86_64 haswell +avx2,-avx512f"), HasSubstr("avx512f"));
  EXPECT_THAT(why_not_on("aarch64 generic +neon", "x86_64 haswell +avx2"), HasSubstr("aarch64"));
  EXPECT_EQ(why_not_on("x86_64", "x86_64 haswell +avx2"), "");
  EXPECT_THAT(why_not_on("x86_64 znver4", "x86_64 haswell +avx2"), HasSubstr("znver4"));
}

}  // namespace
}  // namespace sardonyx
