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

TEST_P(Api, SummaryCountsInstructionsAndBytes) {
  load("basic");
  ASSERT_EQ(sardonyxSimConfigure(R"({"summary": true})"), 0);
  sardonyxSimResetSummary();
  Buffer<float> a(std::vector<float>(64)), b(std::vector<float>(64)), c(64);
  HIP_OK(launch("vectorAdd", {1}, {64}, a.get(), b.get(), c.get(), 60u));
  std::string summary = sardonyxSimSummary();
  EXPECT_NE(summary.find("\"vectorAdd\""), std::string::npos) << summary;
  EXPECT_NE(summary.find("\"memory\":3"), std::string::npos) << summary;  // two loads and a store of one wave
  EXPECT_NE(summary.find("\"global_written\":240"), std::string::npos) << summary;
  EXPECT_NE(summary.find("\"launches\":1"), std::string::npos) << summary;
  load("shared");
  Buffer<float> in(std::vector<float>(256)), out(1);
  HIP_OK(launch("reduceLds", {1}, {256}, in.get(), out.get()));
  summary = sardonyxSimSummary();
  // 256 floats, then 255 sums.
  EXPECT_NE(summary.find("\"lds_written\":2044"), std::string::npos) << summary;
  ASSERT_EQ(sardonyxSimConfigure(R"({"summary": false})"), 0);
}

TEST_P(Api, CountsCalls) {
  load("basic");
  const long long allocations = sardonyxSimCount("allocations"), launches = sardonyxSimCount("kernel_launches");
  Buffer<float> a(std::vector<float>(64)), b(std::vector<float>(64)), c(64);
  HIP_OK(launch("vectorAdd", {1}, {64}, a.get(), b.get(), c.get(), 60u));
  EXPECT_EQ(sardonyxSimCount("allocations") - allocations, 3);
  EXPECT_EQ(sardonyxSimCount("kernel_launches") - launches, 1);
  EXPECT_EQ(sardonyxSimCount("something"), -1);
  EXPECT_EQ(sardonyxSimCount(nullptr), -1);
}

TEST_P(Api, TraceShowsOneWave) {
  load("basic");
  std::string file = testing::TempDir() + "/sim_trace.txt";
  ASSERT_EQ(sardonyxSimConfigure(
                (R"({"trace": {"kernel": "vectorAdd", "workgroup": 1, "wave": 0, "file": ")" + file + "\"}}").c_str()),
            0);
  Buffer<float> a(std::vector<float>(128, 1.5f)), b(std::vector<float>(128, 2.0f)), c(128);
  HIP_OK(launch("vectorAdd", {2}, {64}, a.get(), b.get(), c.get(), 128u));
  ASSERT_EQ(sardonyxSimConfigure(R"({"trace": null})"), 0);
  std::ifstream in(file);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_NE(text.find("v_add_f32"), std::string::npos);
  EXPECT_NE(text.find("= 40600000 40600000"), std::string::npos);  // 3.5f in the lanes of the sum
  EXPECT_NE(text.find("s_endpgm"), std::string::npos);
}

TEST_P(Api, CodeObjectVersionsAndHiddenArguments) {
  for (const char* chip : {"gfx942", "gfx1100"}) {
    ASSERT_EQ(sardonyxSimConfigure((std::string("{\"chips\": [\"") + chip + "\"]}").c_str()), 0);
    for (int version : {4, 5, 6}) {
      SCOPED_TRACE(std::string(chip) + " version " + std::to_string(version));
      hipModule_t m;
      HIP_OK(hipModuleLoad(
          &m, (std::string(SIM_KERNELS) + "/basic." + chip + ".v" + std::to_string(version) + ".co").c_str()));
      hipFunction_t f;
      HIP_OK(hipModuleGetFunction(&f, m, "shape"));
      Buffer<std::uint32_t> out(std::vector<std::uint32_t>(48));
      std::uint32_t* p = out.get();
      void* params[] = {&p};
      HIP_OK(hipModuleLaunchKernel(f, 3, 2, 1, 32, 4, 1, 0, nullptr, params, nullptr));
      auto v = out.read();
      for (std::uint32_t g = 0; g < 6; ++g) {
        std::vector<std::uint32_t> want = {32, 4, 1, 96, 8, g / 3, version > 4 ? 302u : 0, version > 4 ? 32042u : 0};
        EXPECT_EQ(std::vector<std::uint32_t>(v.begin() + g * 8, v.begin() + g * 8 + 8), want) << g;
      }
      HIP_OK(hipModuleUnload(m));
    }
  }
}

TEST_P(Api, BundlesPlainAndCompressed) {
  for (const char* form : {"plain", "compressed"}) {
    SCOPED_TRACE(form);
    std::ifstream file(std::string(SIM_KERNELS) + "/saxpy." + form + ".hipfb", std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), {});
    ASSERT_FALSE(bytes.empty());
    hipModule_t m;
    EXPECT_EQ(hipModuleLoadData(&m, bytes.data()), hipErrorNoBinaryForGpu);  // neither is for gfx942
    ASSERT_EQ(sardonyxSimConfigure(R"({"chips": ["gfx1100"]})"), 0);
    HIP_OK(hipModuleLoadData(&m, bytes.data()));
    void* p;
    std::size_t size;
    HIP_OK(hipModuleGetGlobal(&p, &size, m, "counter"));
    EXPECT_EQ(size, 4u);
    HIP_OK(hipModuleUnload(m));
    ASSERT_EQ(sardonyxSimConfigure(R"({"chips": ["gfx942"]})"), 0);
  }
}

TEST_P(Api, TwoDevices) {
  ASSERT_EQ(sardonyxSimConfigure(R"({"chips": ["gfx942", "gfx942"]})"), 0);
  int can = 0;
  HIP_OK(hipDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  std::vector<float> ones(64, 1.0f), twos(64, 2.0f);
  hipModule_t modules[2];
  float* c[2];
  for (int d = 0; d < 2; ++d) {
    HIP_OK(hipSetDevice(d));
    HIP_OK(hipModuleLoad(&modules[d], (std::string(SIM_KERNELS) + "/basic.gfx942.O2.co").c_str()));
    HIP_OK(hipMalloc(reinterpret_cast<void**>(&c[d]), 256));
    hipPointerAttribute_t attributes;
    HIP_OK(hipPointerGetAttributes(&attributes, c[d]));
    EXPECT_EQ(attributes.device, d);
    std::size_t available, total;
    HIP_OK(hipMemGetInfo(&available, &total));
    EXPECT_EQ(total - available, 256u);
  }
  Buffer<float> a(ones), b(twos);
  HIP_OK(hipSetDevice(1));
  hipFunction_t f;
  HIP_OK(hipModuleGetFunction(&f, modules[1], "vectorAdd"));
  float *pa = a.get(), *pb = b.get();
  std::uint32_t n = 64;
  void* params[] = {&pa, &pb, &c[1], &n};
  HIP_OK(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, nullptr, params, nullptr));
  HIP_OK(hipMemcpyPeer(c[0], 0, c[1], 1, 256));
  std::vector<float> out(64);
  HIP_OK(hipMemcpy(out.data(), c[0], 256, hipMemcpyDeviceToHost));
  EXPECT_EQ(out[63], 3.0f);
  for (int d = 0; d < 2; ++d) {
    HIP_OK(hipModuleUnload(modules[d]));
    HIP_OK(hipFree(c[d]));
  }
}

TEST_P(Api, ThreeDimensionalCopies) {
  hipPitchedPtr box;
  HIP_OK(hipMalloc3D(&box, {20, 4, 3}));
  HIP_OK(hipMemset3D(box, 7, {20, 4, 3}));
  std::vector<unsigned char> host(5 * 2 * 2);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<unsigned char>(100 + i);
  hipMemcpy3DParms p = {};
  p.srcPtr = {host.data(), 5, 5, 2};
  p.dstPtr = box;
  p.dstPos = {3, 1, 1};
  p.extent = {5, 2, 2};
  p.kind = hipMemcpyHostToDevice;
  HIP_OK(hipMemcpy3D(&p));
  std::vector<unsigned char> back(20 * 4 * 3);
  hipMemcpy3DParms q = {};
  q.srcPtr = box;
  q.dstPtr = {back.data(), 20, 20, 4};
  q.extent = {20, 4, 3};
  q.kind = hipMemcpyDeviceToHost;
  HIP_OK(hipMemcpy3D(&q));
  for (std::size_t z = 0; z < 3; ++z)
    for (std::size_t y = 0; y < 4; ++y)
      for (std::size_t x = 0; x < 20; ++x) {
        bool in = z >= 1 && y >= 1 && y < 3 && x >= 3 && x < 8;
        ASSERT_EQ(back[(z * 4 + y) * 20 + x], in ? 100 + ((z - 1) * 2 + y - 1) * 5 + x - 3 : 7) << z << y << x;
      }
  q.extent.depth = 4;
  EXPECT_EQ(hipMemcpy3D(&q), hipErrorInvalidValue);  // past the allocation
  q.srcArray = reinterpret_cast<hipArray_t>(8);
  EXPECT_EQ(hipMemcpy3D(&q), hipErrorNotSupported);
  hip_Memcpy2D flat = {};
  flat.srcMemoryType = hipMemoryTypeDevice;
  flat.srcDevice = box.ptr;
  flat.srcPitch = box.pitch;
  flat.srcXInBytes = 3;
  flat.srcY = 5;  // second slice, second row
  flat.dstMemoryType = hipMemoryTypeHost;
  flat.dstHost = back.data();
  flat.WidthInBytes = 5;
  flat.Height = 1;
  HIP_OK(hipMemcpyParam2D(&flat));
  EXPECT_EQ(back[4], 104);
  HIP_OK(hipFree(box.ptr));
}

int hostCalls = 0;

TEST_P(Api, GraphsBuiltByHand) {
  load("basic");
  Buffer<float> a(std::vector<float>(64, 1.0f)), b(std::vector<float>(64, 2.0f)), c(64);
  hipFunction_t f;
  HIP_OK(hipModuleGetFunction(&f, module_, "vectorAdd"));
  float *pa = a.get(), *pb = b.get(), *pc = c.get();
  std::uint32_t n = 64;
  void* arguments[] = {&pa, &pb, &pc, &n};
  hipGraph_t graph, child;
  HIP_OK(hipGraphCreate(&graph, 0));
  HIP_OK(hipGraphCreate(&child, 0));
  hipGraphNode_t set, kernel, copy, host, inner, inChild, record;
  hipMemsetParams m = {pa, 4, 1, 0, 0x40800000, 64};  // 4.0f
  HIP_OK(hipGraphAddMemsetNode(&set, graph, nullptr, 0, &m));
  hipKernelNodeParams k = {};
  k.func = f, k.gridDim = {1}, k.blockDim = {64}, k.kernelParams = arguments;
  HIP_OK(hipGraphAddKernelNode(&kernel, graph, &set, 1, &k));
  std::vector<float> out(64);
  HIP_OK(hipGraphAddMemcpyNode1D(&copy, graph, &kernel, 1, out.data(), pc, 256, hipMemcpyDeviceToHost));
  hostCalls = 0;
  hipHostNodeParams call = {[](void* p) { hostCalls += *static_cast<int*>(p); }, nullptr};
  int one = 1, ten = 10;
  call.userData = &one;
  HIP_OK(hipGraphAddHostNode(&inChild, child, nullptr, 0, &call));
  HIP_OK(hipGraphAddChildGraphNode(&inner, graph, &copy, 1, child));
  HIP_OK(hipGraphAddHostNode(&host, graph, &inner, 1, &call));
  hipEvent_t event;
  HIP_OK(hipEventCreate(&event));
  HIP_OK(hipGraphAddEventRecordNode(&record, graph, &host, 1, event));
  hipGraphNodeType type;
  HIP_OK(hipGraphNodeGetType(record, &type));
  EXPECT_EQ(type, hipGraphNodeTypeEventRecord);
  hipGraphNode_t neighbour;
  std::size_t count = 1;
  HIP_OK(hipGraphNodeGetDependentNodes(kernel, &neighbour, &count));
  EXPECT_EQ(neighbour, copy);
  HIP_OK(hipGraphNodeGetDependencies(kernel, &neighbour, &count));
  EXPECT_EQ(neighbour, set);
  hipKernelNodeParams seen;
  HIP_OK(hipGraphKernelNodeGetParams(kernel, &seen));
  EXPECT_EQ(seen.blockDim.x, 64u);
  hipGraphExec_t executable;
  HIP_OK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  HIP_OK(hipGraphLaunch(executable, nullptr));
  EXPECT_EQ(out[63], 6.0f);
  EXPECT_EQ(hostCalls, 2);
  call.userData = &ten;
  HIP_OK(hipGraphExecHostNodeSetParams(executable, host, &call));
  HIP_OK(hipGraphExecKernelNodeSetParams(executable, kernel, &seen));  // what was read can be set again
  m.value = 0x41000000;                                                // 8.0f
  HIP_OK(hipGraphExecMemsetNodeSetParams(executable, set, &m));
  HIP_OK(hipGraphLaunch(executable, nullptr));
  EXPECT_EQ(out[0], 10.0f);
  EXPECT_EQ(hostCalls, 13);
  float ms;
  HIP_OK(hipEventElapsedTime(&ms, event, event));
  // A cycle cannot be instantiated.
  HIP_OK(hipGraphAddDependencies(graph, &copy, &set, 1));
  hipGraphExec_t none;
  EXPECT_EQ(hipGraphInstantiate(&none, graph, nullptr, nullptr, 0), hipErrorInvalidValue);
  HIP_OK(hipGraphRemoveDependencies(graph, &copy, &set, 1));
  HIP_OK(hipGraphExecDestroy(executable));
  HIP_OK(hipGraphDestroy(graph));
  HIP_OK(hipGraphDestroy(child));
  HIP_OK(hipEventDestroy(event));
}

TEST_P(Api, FunctionsByNameAndOccupancy) {
  void* p = nullptr;
  HIP_OK(hipGetProcAddress("hipMalloc", &p, 600, 0, nullptr));
  void* memory = nullptr;
  HIP_OK(reinterpret_cast<hipError_t (*)(void**, std::size_t)>(p)(&memory, 64));
  HIP_OK(hipFree(memory));
  hipDriverProcAddressQueryResult status;
  EXPECT_EQ(hipGetProcAddress("hipNonsense", &p, 600, 0, &status), hipErrorNotFound);
  EXPECT_EQ(status, HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(hipGetProcAddress("malloc", &p, 600, 0, nullptr), hipErrorNotFound);
  load("shared");
  hipFunction_t f;
  HIP_OK(hipModuleGetFunction(&f, module_, "reduceLds"));
  EXPECT_STREQ(hipKernelNameRef(f), "reduceLds");
  int blocks = 0, grid = 0, block = 0, value = 0;
  HIP_OK(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 256, 60 << 10));
  EXPECT_EQ(blocks, 1);  // by LDS
  HIP_OK(hipModuleOccupancyMaxPotentialBlockSize(&grid, &block, f, 0, 0));
  EXPECT_EQ(block, 1024);
  HIP_OK(hipFuncGetAttribute(&value, HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f));
  EXPECT_EQ(value, 1024);
}

TEST_P(Api, FailedLaunchesAreReportedAgain) {
  load("basic");
  hipStream_t s;
  HIP_OK(hipStreamCreate(&s));
  hipFunction_t f;
  HIP_OK(hipModuleGetFunction(&f, module_, "vectorAdd"));
  float* bad = nullptr;
  std::uint32_t n = 64;
  void* params[] = {&bad, &bad, &bad, &n};
  EXPECT_EQ(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, s, params, nullptr), hipErrorLaunchFailure);
  EXPECT_EQ(hipStreamSynchronize(s), hipErrorLaunchFailure);
  HIP_OK(hipStreamSynchronize(s));
  HIP_OK(hipStreamDestroy(s));
}

TEST_P(Api, HostMemoryIsUsable) {
  load("basic");
  float *a, *b;
  HIP_OK(hipMallocManaged(reinterpret_cast<void**>(&a), 256, hipMemAttachGlobal));
  HIP_OK(hipHostMalloc(reinterpret_cast<void**>(&b), 256, hipHostMallocMapped));
  std::vector<float> c(64);
  HIP_OK(hipHostRegister(c.data(), 256, hipHostRegisterMapped));
  EXPECT_EQ(hipHostRegister(c.data(), 256, hipHostRegisterMapped), hipErrorHostMemoryAlreadyRegistered);
  void* pc;
  HIP_OK(hipHostGetDevicePointer(&pc, c.data(), 0));
  for (int i = 0; i < 64; ++i) a[i] = static_cast<float>(i), b[i] = 1;
  HIP_OK(launch("vectorAdd", {1}, {64}, a, b, static_cast<float*>(pc), 64u));
  EXPECT_EQ(c[63], 64.0f);
  HIP_OK(hipHostUnregister(c.data()));
  EXPECT_EQ(launch("vectorAdd", {1}, {64}, a, b, static_cast<float*>(pc), 64u), hipErrorLaunchFailure);
  HIP_OK(hipFree(a));
  HIP_OK(hipHostFree(b));
}

}  // namespace
