// An epilogue as steps of our own vector kernels.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "epilogue/post_op.h"
#include "host/simd.h"

namespace sardonyx::host {

/// Whether our own kernels support all of `post` on an image of these extents, [batch, spatial..., channels].
bool has_steps(const std::vector<PostOp>& post, const std::vector<std::int64_t>& image);

/// Whether `post` has a function with an exponential: oneDNN takes 60 cycles per vector for it, our own kernels 25.
bool has_exponential(const std::vector<PostOp>& post);

/// The steps of `post`, for which has_steps() must hold, with these operands.
std::vector<EpilogueStep> epilogue_steps(const std::vector<PostOp>& post, std::span<const void* const> operands,
                                         const std::vector<std::int64_t>& image);

}  // namespace sardonyx::host
