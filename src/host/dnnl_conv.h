// Convolution through oneDNN. Uses nothing of oneDNN's in its interface.
#pragma once
#include <memory>
#include <string>

#include "host/conv.h"

namespace sardonyx::host {

/// The kernel for `desc`, whose extents fit each other, or null and the reason. `reference`: oneDNN's unoptimised code
/// will do.
std::shared_ptr<const TileKernel> make_dnnl_convolution(const ConvDesc& desc, std::string& why, bool reference = false);

}  // namespace sardonyx::host
