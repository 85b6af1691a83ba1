// Issue of one kind of instruction: every wave executes a thousand of them in a row, in workgroups of 1024 lanes.
#include "common.h"

#ifdef __AMDGCN__
#define THOUSAND(TEXT, ...) asm volatile(".rept 1000\n" TEXT "\n.endr" ::: __VA_ARGS__)
#else
#define THOUSAND(TEXT, ...)
#endif

__global__ void vmov() { THOUSAND("v_mov_b32 v0, v1", "v0", "v31"); }
__global__ void smov() { THOUSAND("s_mov_b32 s0, s1", "s0", "s31"); }
__global__ void snop() { THOUSAND("s_nop 0x0", "v31"); }
__global__ void divergent() {
  if (threadIdx.x % 64 == 0) THOUSAND("v_mov_b32 v0, v1", "v0", "v31");
}
__global__ void fma64() { THOUSAND("v_fma_f64 v[0:1], v[2:3], v[4:5], v[0:1]", "v0", "v1", "v31"); }
__global__ void exponential() { THOUSAND("v_exp_f32 v0, v1", "v0", "v31"); }

#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
__global__ void mfma() {
#ifdef __gfx90a__
  THOUSAND("v_mfma_f32_32x32x8bf16_1k v[0:15], v[16:17], v[18:19], v[0:15]", "v0", "v1", "v2", "v3", "v4", "v5", "v6",
           "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v31");
#else
  THOUSAND("v_mfma_f32_32x32x8_bf16 v[0:15], v[16:17], v[18:19], v[0:15]", "v0", "v1", "v2", "v3", "v4", "v5", "v6",
           "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v31");
#endif
}
#else
__global__ void mfma() {}  // the host refuses it
#endif

int main(int argc, char** argv) {
  const char* usage = "issue_rate vmov|smov|snop|divergent|fma64|exp|mfma [WORKGROUPS] [LANES]; mfma on CDNA only";
  const char* kind = word(argc, argv, 1, "vmov");
  const long groups = number(argc, argv, 2, 1024), lanes = number(argc, argv, 3, 1024);
  hipDeviceProp_t properties;
  check(hipGetDeviceProperties(&properties, 0), "reading the device's properties");
  constexpr struct {
    const char* name;
    void (*kernel)();
  } kKernels[] = {{"vmov", vmov},   {"smov", smov},       {"snop", snop}, {"divergent", divergent},
                  {"fma64", fma64}, {"exp", exponential}, {"mfma", mfma}};
  for (const auto& entry : kKernels) {
    if (std::strcmp(entry.name, kind)) continue;
    if (entry.kernel == mfma && std::strncmp(properties.gcnArchName, "gfx9", 4)) break;
    entry.kernel<<<groups, lanes>>>();
    finish(kind);
    std::printf("%s, %ld workgroups of %ld lanes, 1000 instructions a wave\n", kind, groups, lanes);
    return 0;
  }
  refuse(usage);
}
