// Convolution through oneDNN. The interface does not expose oneDNN.
#pragma once
#include <memory>
#include <string>

#include "host/conv.h"

namespace sardonyx::host {

/// The kernel for `desc`, whose extents are consistent, or null and the reason. `reference`: allows oneDNN's reference
/// code.
std::shared_ptr<const TileKernel> make_dnnl_convolution(const ConvDesc& desc, std::string& why, bool reference = false);

}  // namespace sardonyx::host
