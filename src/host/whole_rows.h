// Convolutions of few channels whose windows are whole rows of the image, as convolutions along columns.
#pragma once
#include <memory>

#include "host/conv.h"

namespace sardonyx::host {

/// Whether the window of each result is a number of whole rows of the image. oneDNN's direct kernels share a weight
/// between neighbours of a row, of which there are none.
bool spans_rows(const ConvDesc& d);

/// `d` with one pixel in each row, whose channels are those of all pixels.
ConvDesc with_rows_as_channels(const ConvDesc& d);

/// Runs `inner`, a kernel of with_rows_as_channels(d), with the weights of `d`.
std::shared_ptr<const TileKernel> make_rows_as_channels(std::shared_ptr<const TileKernel> inner, const ConvDesc& d);

}  // namespace sardonyx::host
