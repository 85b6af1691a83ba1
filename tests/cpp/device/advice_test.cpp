// Messages for drivers that find no GPU.
#include "device/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sardonyx {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Advice : public testing::Test {
 protected:
  Advice() {
    dev_ = fs::temp_directory_path() / ("sardonyx-advice-" + std::to_string(::getpid()));
    fs::create_directories(dev_ / "dri");
    files_ = {[](const fs::path& p) { return fs::exists(p); }, [this](const fs::path& p) { return p != locked_; }};
  }
  ~Advice() override { fs::remove_all(dev_); }
  void add(const char* name) const { std::ofstream(dev_ / name) << ""; }

  fs::path dev_, locked_;
  FileAccess files_;
};

TEST_F(Advice, OfAmd) {
  EXPECT_THAT(amd_advice(dev_, files_), testing::AllOf(HasSubstr("kfd"), HasSubstr("amdgpu")));
  add("kfd");
  EXPECT_THAT(amd_advice(dev_, files_), HasSubstr("renderD128"));
  add("dri/renderD129");
  EXPECT_EQ(amd_advice(dev_, files_), "");
  locked_ = dev_ / "kfd";
  EXPECT_THAT(amd_advice(dev_, files_), testing::AllOf(HasSubstr("kfd may not"), HasSubstr("render and video")));
  locked_ = dev_ / "dri/renderD129";
  EXPECT_THAT(amd_advice(dev_, files_), testing::AllOf(HasSubstr("renderD129 may not"), HasSubstr("render and video")));
  EXPECT_THAT(amd_advice(dev_ / "nowhere", files_), HasSubstr("there is no"));
}

TEST_F(Advice, OfNvidia) {
  EXPECT_THAT(nvidia_advice(dev_, files_), HasSubstr("kernel driver"));
  add("nvidiactl");
  EXPECT_EQ(nvidia_advice(dev_, files_), "");
  locked_ = dev_ / "nvidiactl";
  EXPECT_THAT(nvidia_advice(dev_, files_), HasSubstr("may not be opened"));
}

}  // namespace
}  // namespace sardonyx
