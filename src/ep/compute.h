// Runs of fused nodes: passes the tensors of a node in ONNX Runtime to the compiled group.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ep/compiled_group.h"
#include "ep/ort.h"
#include "ep/trace.h"

namespace sardonyx::ep {

/// One fused node of one session. Safe from many threads. A warm run neither allocates nor looks up names.
class GroupCompute : public OrtNodeComputeInfo {
 public:
  /// `inputs`, `outputs`: names of the fused node's values. Throws Error if the group's names differ.
  GroupCompute(const Ort& ort, std::shared_ptr<CompiledGroup> group, std::shared_ptr<Trace> trace,
               const std::vector<std::string>& inputs, const std::vector<std::string>& outputs);
  ~GroupCompute();

 private:
  struct Scratch;
  static OrtStatus* do_compute(OrtNodeComputeInfo* self, void* state, OrtKernelContext* context) noexcept;
  void run(OrtKernelContext* context);
  OutputMemory give(OrtKernelContext* context, Scratch& scratch, std::size_t k, DType dtype,
                    const std::vector<std::int64_t>& dims);
  std::unique_ptr<Scratch> acquire();
  void release(std::unique_ptr<Scratch> s);

  const Ort& ort_;
  std::shared_ptr<CompiledGroup> group_;
  std::shared_ptr<Trace> trace_;
  std::vector<std::size_t> input_, output_;  ///< positions in the fused node, by the model's input and output
  bool gpu_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace sardonyx::ep
