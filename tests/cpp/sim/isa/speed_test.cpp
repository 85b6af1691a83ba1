// How fast matrix instructions execute, on one thread: printed, and held to a floor far below what an idle machine
// reaches, so that only a loss of vectorisation fails it.
#include <chrono>
#include <cstdio>

#include "lab.h"

namespace {

void measure(const char* chip, const std::string& text) {
  Lab lab(chip);
  for (int r = 0; r < 64; ++r) lab.fill(r, 0x38383838u);
  lab.run(text);
  int count = 0;
  auto start = std::chrono::steady_clock::now();
  double seconds = 0;
  while (seconds < 0.05) {
    for (int i = 0; i < 100; ++i) lab.run(text);
    count += 100;
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  double rate = count / seconds;
  std::printf("%-8s %-100s %6.3f million/s on one core\n", chip, text.substr(0, text.find(' ')).c_str(), rate / 1e6);
  EXPECT_GT(rate, 10'000) << text;
}

TEST(MatrixSpeed, InstructionsPerSecond) {
  measure("gfx90a", "v_mfma_f32_16x16x16f16 v[128:131], v[2:3], v[34:35], v[128:131]");
  measure("gfx90a", "v_mfma_f32_32x32x8f16 v[128:143], v[2:3], v[34:35], v[128:143]");
  measure("gfx942", "v_mfma_f32_16x16x16_f16 v[128:131], v[2:3], v[34:35], v[128:131]");
  measure("gfx942", "v_mfma_f32_32x32x8_f16 v[128:143], v[2:3], v[34:35], v[128:143]");
  measure("gfx942", "v_mfma_f32_32x32x2_f32 v[128:143], v2, v34, v[128:143]");
  measure("gfx942", "v_mfma_f64_16x16x4_f64 v[128:135], v[2:3], v[34:35], v[128:135]");
  measure("gfx942", "v_mfma_i32_32x32x16_i8 v[128:143], v[2:3], v[34:35], v[128:143]");
  measure("gfx942", "v_mfma_f32_32x32x16_fp8_fp8 v[128:143], v[2:3], v[34:35], v[128:143]");
  measure("gfx942", "v_smfmac_f32_16x16x32_f16 v[128:131], v[2:3], v[34:37], v40");
  measure("gfx950", "v_mfma_f32_32x32x16_f16 v[128:143], v[2:5], v[34:37], v[128:143]");
  measure("gfx950", "v_mfma_f32_32x32x64_f8f6f4 v[128:143], v[2:9], v[34:41], v[128:143]");
  measure("gfx1100", "v_wmma_f32_16x16x16_f16 v[128:135], v[2:9], v[34:41], v[128:135]");
  measure("gfx1100", "v_wmma_f16_16x16x16_f16 v[128:135], v[2:9], v[34:41], v[128:135]");
  measure("gfx1201", "v_wmma_f32_16x16x16_bf16 v[128:135], v[2:5], v[34:37], v[128:135]");
  measure("gfx1201", "v_wmma_i32_16x16x32_iu4 v[128:135], v[2:3], v[34:35], v[128:135]");
}

}  // namespace
