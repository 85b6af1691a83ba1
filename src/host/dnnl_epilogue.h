// An epilogue as passes over the stored result. Only dnnl_*.cpp include this.
#pragma once
#include <memory>
#include <vector>

#include "host/dnnl_common.h"

namespace sardonyx::host {

/// Runs `inner`, which has no epilogue, then each step of `post` over its float32 result. `operands` describe the
/// tensors of those steps that have one. Null if oneDNN cannot do a step.
std::shared_ptr<const TileKernel> make_epilogue_kernel(std::shared_ptr<const TileKernel> inner,
                                                       const dnnl::memory::desc& out, const std::vector<PostOp>& post,
                                                       const std::vector<dnnl::memory::desc>& operands, int threads);

}  // namespace sardonyx::host
