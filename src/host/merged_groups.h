// Convolutions of groups that are narrower than a vector, as convolutions of fewer, wider groups.
#pragma once
#include <cstdint>
#include <memory>

#include "host/conv.h"

namespace sardonyx::host {

/// How many groups of `d` should become one. oneDNN computes groups of fewer channels than a vector has lanes one
/// channel at a time, so that products with zeros cost less: on one core of a Xeon with AVX2, 3x3 over 56x56x128 takes
/// 3.0 ms in groups of 4 channels and 1.2 in groups of 8. Only for constant weights, which are expanded once, and not
/// depthwise, for which oneDNN has kernels. 1: as they are.
std::int64_t merged_groups(const ConvDesc& d);

/// `d` with groups of `merged` times as many channels.
ConvDesc with_merged_groups(const ConvDesc& d, std::int64_t merged);

/// Runs `inner`, the kernel of with_merged_groups(d, merged), with the weights of `d`.
std::shared_ptr<const TileKernel> make_merged_groups(std::shared_ptr<const TileKernel> inner, const ConvDesc& d,
                                                     std::int64_t merged);

}  // namespace sardonyx::host
