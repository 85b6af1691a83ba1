// Streams that are held: what waits for them, and what does not.
#include <chrono>
#include <thread>

#include "harness.h"

namespace {

class Order : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    HIP_OK(hipStreamCreateWithFlags(&slow_, hipStreamNonBlocking));
    HIP_OK(hipStreamCreateWithFlags(&side_, hipStreamNonBlocking));
    HIP_OK(hipStreamCreate(&blocking_));
    HIP_OK(hipEventCreate(&event_));
    HIP_OK(hipHostMalloc(reinterpret_cast<void**>(&pinned_), 64, 0));
    HIP_OK(hipMalloc(reinterpret_cast<void**>(&memory_), 64));
    HIP_OK(hipMemset(memory_, 0, 64));
  }
  void TearDown() override {
    for (hipStream_t s : {slow_, side_, blocking_}) HIP_OK(hipStreamDestroy(s));
    HIP_OK(hipEventDestroy(event_));
    HIP_OK(hipHostFree(pinned_));
    HIP_OK(hipFree(memory_));
    SimTest::TearDown();
  }
  /// What is in device memory now; nothing waits for a stream.
  int now(int k = 0) const { return memory_[k]; }
  static long long waiting() { return sardonyxSimCount("waiting"); }
  void set(int k, int value, hipStream_t s) { HIP_OK(hipMemsetD32Async(memory_ + k, value, 1, s)); }

  hipStream_t slow_ = nullptr, side_ = nullptr, blocking_ = nullptr;
  hipEvent_t event_ = nullptr;
  int *pinned_ = nullptr, *memory_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(One, Order, testing::Values(Target{"gfx942", 2}), targetName);

TEST_P(Order, AStreamThatIsHeld) {
  ASSERT_EQ(sardonyxSimHoldStream(slow_), 0);
  EXPECT_EQ(sardonyxSimHoldStream(slow_), -1);
  set(0, 1, slow_);
  set(0, 2, slow_);
  EXPECT_EQ(waiting(), 2);
  EXPECT_EQ(hipStreamQuery(slow_), hipErrorNotReady);
  EXPECT_EQ(hipStreamQuery(side_), hipSuccess);
  set(1, 3, side_);  // nothing orders it after the other
  EXPECT_EQ(now(0), 0);
  EXPECT_EQ(now(1), 3);
  ASSERT_EQ(sardonyxSimReleaseStream(slow_), 0);
  EXPECT_EQ(sardonyxSimReleaseStream(slow_), -1);
  EXPECT_EQ(now(0), 2);
  EXPECT_EQ(waiting(), 0);
  EXPECT_EQ(hipStreamQuery(slow_), hipSuccess);
}

TEST_P(Order, EventsOrderStreams) {
  HIP_OK(hipEventRecord(event_, slow_));
  HIP_OK(hipEventQuery(event_));
  ASSERT_EQ(sardonyxSimHoldStream(slow_), 0);
  HIP_OK(hipStreamWaitEvent(side_, event_, 0));  // reached: nothing waits
  set(0, 1, side_);
  EXPECT_EQ(now(), 1);
  *pinned_ = 7;
  HIP_OK(hipMemcpyAsync(memory_, pinned_, 4, hipMemcpyHostToDevice, slow_));
  HIP_OK(hipEventRecord(event_, slow_));
  EXPECT_EQ(hipEventQuery(event_), hipErrorNotReady);
  set(1, 5, slow_);
  HIP_OK(hipStreamWaitEvent(side_, event_, 0));
  HIP_OK(hipMemcpyAsync(memory_ + 2, memory_, 4, hipMemcpyDeviceToDevice, side_));
  HIP_OK(hipEventRecord(event_, slow_));  // the wait is for the record before it
  EXPECT_EQ(now(2), 0);
  ASSERT_EQ(sardonyxSimReleaseStream(slow_), 0);
  EXPECT_EQ(now(0), 7);
  EXPECT_EQ(now(1), 5);
  EXPECT_EQ(now(2), 7);
  HIP_OK(hipEventQuery(event_));
}

TEST_P(Order, TheNullStream) {
  ASSERT_EQ(sardonyxSimHoldStream(blocking_), 0);
  set(0, 1, nullptr);  // nothing is before it
  EXPECT_EQ(now(), 1);
  set(0, 2, blocking_);
  set(0, 3, nullptr);  // after work of a blocking stream
  set(1, 4, side_);    // of a stream that does not take part
  EXPECT_EQ(now(0), 1);
  EXPECT_EQ(now(1), 4);
  ASSERT_EQ(sardonyxSimReleaseStream(blocking_), 0);
  EXPECT_EQ(now(0), 3);
  ASSERT_EQ(sardonyxSimHoldStream(nullptr), 0);
  set(0, 5, nullptr);
  set(0, 6, blocking_);
  EXPECT_EQ(now(0), 3);
  ASSERT_EQ(sardonyxSimReleaseStream(nullptr), 0);
  EXPECT_EQ(now(0), 6);
}

TEST_P(Order, LaunchesAndGraphsThatAreChangedLater) {
  load("basic");
  Buffer<float> a(std::vector<float>(64, 1.0f)), b(std::vector<float>(64, 2.0f)), c(64), d(64);
  hipFunction_t f;
  HIP_OK(hipModuleGetFunction(&f, module_, "vectorAdd"));
  float *pa = a.get(), *pb = b.get(), *pc = c.get(), *pd = d.get();
  std::uint32_t n = 64;
  void *sum[] = {&pa, &pb, &pc, &n}, *twice[] = {&pc, &pc, &pd, &n};
  hipGraph_t graph;
  HIP_OK(hipStreamBeginCapture(side_, hipStreamCaptureModeGlobal));
  HIP_OK(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, side_, sum, nullptr));
  HIP_OK(hipStreamEndCapture(side_, &graph));
  hipGraphExec_t executable;
  HIP_OK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  ASSERT_EQ(sardonyxSimHoldStream(slow_), 0);
  HIP_OK(hipGraphLaunch(executable, slow_));
  HIP_OK(hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, slow_, twice, nullptr));
  std::size_t count = 1;
  hipGraphNode_t node;
  HIP_OK(hipGraphGetNodes(graph, &node, &count));
  hipKernelNodeParams k = {};
  k.func = f;
  k.gridDim = {1};
  k.blockDim = {64};
  void* changed[] = {&pb, &pb, &pc, &n};
  k.kernelParams = changed;
  HIP_OK(hipGraphExecKernelNodeSetParams(executable, node, &k));
  HIP_OK(hipGraphExecDestroy(executable));
  HIP_OK(hipGraphDestroy(graph));
  pa = pb = pc = pd = nullptr;  // arguments are copied
  EXPECT_EQ(waiting(), 2);
  ASSERT_EQ(sardonyxSimReleaseStream(slow_), 0);
  EXPECT_EQ(d.read()[63], 6.0f);
}

// Each of these waits for the stream, which another thread releases.
TEST_P(Order, WhatBlocks) {
  int pageable = 9;
  const std::function<void()> calls[] = {
      [&] { HIP_OK(hipStreamSynchronize(slow_)); },
      [&] { HIP_OK(hipDeviceSynchronize()); },
      [&] { HIP_OK(hipMemcpyAsync(&pageable, memory_, 4, hipMemcpyDeviceToHost, slow_)); },
      [&] { HIP_OK(hipMemcpyWithStream(pinned_, memory_, 4, hipMemcpyDeviceToHost, slow_)); },
      [&] {
        HIP_OK(hipEventRecord(event_, slow_));
        HIP_OK(hipEventSynchronize(event_));
      },
      [&] {
        void* more;
        HIP_OK(hipMalloc(&more, 4));
        HIP_OK(hipFree(more));
      }};
  int value = 0;
  for (const auto& call : calls) {
    ASSERT_EQ(sardonyxSimHoldStream(slow_), 0);
    set(0, ++value, slow_);
    EXPECT_EQ(now(), value - 1);
    std::thread releases([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(now(), value - 1);
      EXPECT_EQ(sardonyxSimReleaseStream(slow_), 0);
    });
    call();
    EXPECT_EQ(now(), value);
    releases.join();
  }
  EXPECT_EQ(pageable, 3);
}

}  // namespace
