// HIP's C API besides kernels' results: launches in both argument forms, graphs, events, pools, errors.
#include "harness.h"

namespace {

class Api : public SimTest {};
INSTANTIATE_TEST_SUITE_P(One, Api, testing::Values(Target{"gfx942", 2}), targetName);

TEST_P(Api, DevicesAndProperties) {
  ASSERT_EQ(sardonyxSimConfigure(R"({"chips": ["gfx942", "gfx1100"]})"), 0);
  int count = 0;
  HIP_OK(hipGetDeviceCount(&count));
  EXPECT_EQ(count, 2);
  hipDeviceProp_t p;
  HIP_OK(hipGetDeviceProperties(&p, 1));
  EXPECT_STREQ(p.gcnArchName, "gfx1100");
  EXPECT_EQ(p.warpSize, 32);
  int value = 0;
  HIP_OK(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 0));
  EXPECT_EQ(value, 64);
  EXPECT_EQ(hipSetDevice(2), hipErrorInvalidDevice);
  EXPECT_EQ(hipGetLastError(), hipErrorInvalidDevice);
  EXPECT_EQ(hipGetLastError(), hipSuccess);
  EXPECT_STREQ(hipGetErrorName(hipErrorLaunchFailure), "hipErrorLaunchFailure");
  // The layout of ROCm 6's structure.
  EXPECT_EQ(sizeof(hipDeviceProp_t), 1472u);
  EXPECT_EQ(offsetof(hipDeviceProp_t, gcnArchName), 1160u);
}

TEST_P(Api, ConfigurationIsChecked) {
  EXPECT_EQ(sardonyxSimConfigure(R"({"chips": ["gfx1"]})"), -1);
  EXPECT_NE(std::string(sardonyxSimLastFailure()).find("gfx942"), std::string::npos);
  EXPECT_EQ(sardonyxSimConfigure(R"({"speed": 9})"), -1);
  EXPECT_EQ(sardonyxSimConfigure("nonsense"), -1);
  int count = 0;
  HIP_OK(hipGetDeviceCount(&count));
  EXPECT_EQ(count, 1);
}

TEST_P(Api, LaunchWithExtraBuffer) {
  load("basic");
  Buffer<float> a(std::vector<float>(64, 1.5f)), b(std::vector<float>(64, 2.0f)), c(64);
  struct {
    float *a, *b, *c;
    std::uint32_t n;
  } arguments = {a.get(), b.get(), c.get(), 64};
  std::size_t size = sizeof arguments;
  void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &arguments, HIP_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   HIP_LAUNCH_PARAM_END};
  hipFunction_t f;
  HIP_OK(hipModuleGetFunction(&f, module_, "vectorAdd"));
  HIP_OK(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(c.read()[63], 3.5f);
  size = 8;
  EXPECT_EQ(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, nullptr, nullptr, extra), hipErrorInvalidValue);
}

TEST_P(Api, CapturedGraphIsLaunchedAndUpdated) {
  load("basic");
  Buffer<float> a(std::vector<float>(64, 1.0f)), b(std::vector<float>(64, 2.0f)), c(64);
  std::vector<float> host(64);
  hipStream_t s, side;
  hipEvent_t fork, join;
  HIP_OK(hipStreamCreate(&s));
  HIP_OK(hipStreamCreateWithFlags(&side, hipStreamNonBlocking));
  HIP_OK(hipEventCreate(&fork));
  HIP_OK(hipEventCreate(&join));
  hipFunction_t f;
  HIP_OK(hipModuleGetFunction(&f, module_, "vectorAdd"));
  float *pa = a.get(), *pb = b.get(), *pc = c.get();
  std::uint32_t n = 64;
  void* params[] = {&pa, &pb, &pc, &n};
  HIP_OK(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
  HIP_OK(hipMemsetD32Async(pa, 0x40400000, 64, s));  // 3.0f
  HIP_OK(hipEventRecord(fork, s));
  HIP_OK(hipStreamWaitEvent(side, fork, 0));
  HIP_OK(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, side, params, nullptr));
  HIP_OK(hipEventRecord(join, side));
  HIP_OK(hipStreamWaitEvent(s, join, 0));
  HIP_OK(hipMemcpyAsync(host.data(), pc, 256, hipMemcpyDeviceToHost, s));
  hipStreamCaptureStatus status;
  HIP_OK(hipStreamIsCapturing(side, &status));
  EXPECT_EQ(status, hipStreamCaptureStatusActive);
  hipGraph_t graph;
  HIP_OK(hipStreamEndCapture(s, &graph));
  EXPECT_EQ(a.read()[0], 1.0f);  // nothing ran yet
  std::size_t count = 0;
  HIP_OK(hipGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 3u);
  hipGraphExec_t executable;
  HIP_OK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  HIP_OK(hipGraphLaunch(executable, s));
  HIP_OK(hipStreamSynchronize(s));
  EXPECT_EQ(host[63], 5.0f);
  // The kernel node with another argument.
  std::vector<hipGraphNode_t> nodes(3);
  HIP_OK(hipGraphGetNodes(graph, nodes.data(), &count));
  hipKernelNodeParams k = {};
  k.func = f;
  k.gridDim = {1};
  k.blockDim = {64};
  void* changed[] = {&pa, &pa, &pc, &n};
  k.kernelParams = changed;
  HIP_OK(hipGraphExecKernelNodeSetParams(executable, nodes[1], &k));
  HIP_OK(hipGraphLaunch(executable, s));
  EXPECT_EQ(host[63], 6.0f);
  hipGraphExecUpdateResult result;
  hipGraphNode_t bad;
  HIP_OK(hipGraphExecUpdate(executable, graph, &bad, &result));
  HIP_OK(hipGraphLaunch(executable, s));
  EXPECT_EQ(host[63], 5.0f);
  HIP_OK(hipGraphExecDestroy(executable));
  HIP_OK(hipGraphDestroy(graph));
  EXPECT_EQ(hipGraphDestroy(graph), hipErrorInvalidValue);
  HIP_OK(hipEventDestroy(fork));
  HIP_OK(hipEventDestroy(join));
  HIP_OK(hipStreamDestroy(side));
  HIP_OK(hipStreamDestroy(s));
  EXPECT_EQ(hipStreamSynchronize(s), hipErrorInvalidHandle);
}

TEST_P(Api, MemoryKindsCopiesAndBounds) {
  void* p = nullptr;
  HIP_OK(hipHostMalloc(&p, 100, 0));
  hipPointerAttribute_t attributes;
  HIP_OK(hipPointerGetAttributes(&attributes, static_cast<char*>(p) + 50));
  EXPECT_EQ(attributes.type, hipMemoryTypeHost);
  HIP_OK(hipHostFree(p));
  HIP_OK(hipMallocAsync(&p, 128, nullptr));
  std::vector<char> host(200, 'x');
  EXPECT_EQ(hipMemcpy(p, host.data(), 200, hipMemcpyHostToDevice), hipErrorInvalidValue);  // longer than the allocation
  HIP_OK(hipMemset2D(p, 16, 'a', 4, 8));
  HIP_OK(hipMemcpy2D(host.data(), 8, p, 16, 4, 8, hipMemcpyDeviceToHost));
  EXPECT_EQ(std::string(host.data(), 16), "aaaaxxxxaaaaxxxx");
  HIP_OK(hipFreeAsync(p, nullptr));
  EXPECT_EQ(hipFree(p), hipErrorInvalidValue);
  std::size_t available, total;
  HIP_OK(hipMemGetInfo(&available, &total));
  EXPECT_EQ(available, total);
}

TEST_P(Api, EventsMeasureTime) {
  hipEvent_t start, stop;
  HIP_OK(hipEventCreate(&start));
  HIP_OK(hipEventCreate(&stop));
  float ms = -1;
  EXPECT_EQ(hipEventElapsedTime(&ms, start, stop), hipErrorInvalidHandle);  // not recorded
  HIP_OK(hipEventRecord(start, nullptr));
  HIP_OK(hipEventRecord(stop, nullptr));
  HIP_OK(hipEventElapsedTime(&ms, start, stop));
  EXPECT_GE(ms, 0.0f);
  HIP_OK(hipEventDestroy(start));
  HIP_OK(hipEventDestroy(stop));
}

TEST_P(Api, WrongImagesAreRefused) {
  hipModule_t m;
  EXPECT_EQ(hipModuleLoad(&m, "/nonexistent"), hipErrorFileNotFound);
  std::string other = std::string(SIM_KERNELS) + "/basic.gfx1100.O2.co";
  EXPECT_EQ(hipModuleLoad(&m, other.c_str()), hipErrorNoBinaryForGpu);
  char junk[128] = "not an ELF file";
  EXPECT_EQ(hipModuleLoadData(&m, junk), hipErrorInvalidImage);
}

TEST_P(Api, SummaryCountsInstructions) {
  load("basic");
  ASSERT_EQ(sardonyxSimConfigure(R"({"summary": true})"), 0);
  sardonyxSimResetSummary();
  Buffer<float> a(std::vector<float>(64)), b(std::vector<float>(64)), c(64);
  HIP_OK(launch("vectorAdd", {1}, {64}, a.get(), b.get(), c.get(), 64u));
  std::string summary = sardonyxSimSummary();
  EXPECT_NE(summary.find("\"vectorAdd\""), std::string::npos) << summary;
  EXPECT_NE(summary.find("\"memory\":3"), std::string::npos) << summary;  // two loads and a store of one wave
  ASSERT_EQ(sardonyxSimConfigure(R"({"summary": false})"), 0);
}

}  // namespace
