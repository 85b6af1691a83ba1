// Graphs of launches, built node by node, because changing a node later needs the driver's handle of it.
#include <algorithm>
#include <vector>

#include "device/device.h"
#include "device/driver.h"
#include "support/error.h"

namespace sardonyx {
namespace {

/// CUgraphEdgeData of a launch that may start while the previous one still runs.
struct EarlyStart {
  unsigned char from_port = 1;  // CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC: when all workgroups have triggered it
  unsigned char to_port = 0;
  unsigned char type = 1;  // CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
  unsigned char reserved[5] = {};
};

constexpr int kCaptureOfThisThread = 1;  // only this thread's calls are refused if they cannot be captured

/// What `work` enqueues on a stream, captured as a graph.
class Recorded {
 public:
  Recorded(const Driver& driver, Gpu& gpu, const GpuWork& work) : driver_(driver) {
    const std::shared_ptr<void> stream = gpu.create_stream();
    driver_.require(driver_.capture_begin(stream.get(), kCaptureOfThisThread), "beginning to record a stream");
    try {
      work.give(stream.get());
    } catch (const Error&) {
      driver_.capture_end(stream.get(), &graph_);
      release();
      throw;
    }
    driver_.require(driver_.capture_end(stream.get(), &graph_), "recording a stream");
  }
  ~Recorded() { release(); }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  void* graph() const { return graph_; }

 private:
  void release() {
    if (graph_) driver_.graph_destroy(graph_);
    graph_ = nullptr;
  }
  const Driver& driver_;
  void* graph_ = nullptr;
};

class DriverGraph : public GpuGraph {
 public:
  DriverGraph(const Driver& driver, std::shared_ptr<Gpu> gpu) : driver_(driver), gpu_(std::move(gpu)) {}
  ~DriverGraph() override {
    try {
      const Gpu::Scope scope(*gpu_);
      if (executable_) driver_.graph_release(executable_);
      if (graph_) driver_.graph_destroy(graph_);
    } catch (const Error&) {
      return;  // the driver is already unloaded
    }
  }

  void build(std::span<const GpuLaunch> launches) {
    driver_.require(driver_.graph_create(&graph_, 0), "making a graph");
    void* last = nullptr;
    bool last_is_kernel = false;
    for (const GpuLaunch& l : launches) {
      void* node = nullptr;
      // Kernels of vendors' libraries neither wait for the previous launch nor trigger the next one: full ordering.
      const bool early = last && last_is_kernel && !l.work && l.starts_early && driver_.graph_add_order,
                 after = last && !early;
      last_is_kernel = !l.work;
      if (l.work) {
        const Recorded inner(driver_, *gpu_, *l.work);
        driver_.require(driver_.graph_add_graph(&node, graph_, &last, after ? 1 : 0, inner.graph()),
                        "adding a library's launches to a graph");
        nodes_.push_back(node);
        last = node;
        continue;
      }
      driver_.require(driver_.form->with_node(l,
                                              [&](const void* params) {
                                                return driver_.graph_add_kernel(&node, graph_, &last, after ? 1 : 0,
                                                                                params);
                                              }),
                      "adding a launch to a graph");
      if (early) {
        const EarlyStart kind;
        driver_.require(driver_.graph_add_order(graph_, &last, &node, &kind, 1), "ordering the launches of a graph");
      }
      nodes_.push_back(node);
      last = node;
    }
    driver_.require(driver_.graph_instantiate(&executable_, graph_, 0), "instantiating a graph");
  }

  void set(std::size_t k, const GpuLaunch& l) override {
    const Gpu::Scope scope(*gpu_);
    if (l.work) {
      const Recorded inner(driver_, *gpu_, *l.work);
      driver_.require(driver_.graph_set_graph(executable_, nodes_[k], inner.graph()), "changing a graph");
      return;
    }
    driver_.require(
        driver_.form->with_node(
            l, [&](const void* params) { return driver_.graph_set_kernel(executable_, nodes_[k], params); }),
        "changing a graph");
  }
  void launch(GpuStream stream) override {
    const Gpu::Scope scope(*gpu_);
    driver_.require(driver_.graph_launch(executable_, stream), "launching a graph");
  }

 private:
  const Driver& driver_;
  std::shared_ptr<Gpu> gpu_;
  void* graph_ = nullptr;
  void* executable_ = nullptr;
  std::vector<void*> nodes_;
};

}  // namespace

std::unique_ptr<GpuGraph> make_graph(const Driver& d, std::shared_ptr<Gpu> gpu, std::span<const GpuLaunch> launches) {
  if (!d.graph_create || !d.graph_destroy || !d.graph_add_kernel || !d.graph_instantiate || !d.graph_set_kernel ||
      !d.graph_launch || !d.graph_release)
    return nullptr;
  const bool records = d.capture_begin && d.capture_end && d.graph_add_graph && d.graph_set_graph;
  if (!records && std::any_of(launches.begin(), launches.end(), [](const GpuLaunch& l) { return l.work; }))
    return nullptr;
  auto graph = std::make_unique<DriverGraph>(d, std::move(gpu));
  graph->build(launches);
  return graph;
}

}  // namespace sardonyx
