// Internal to fuse/: convolutions of images with few channels, for devices that read operands 16 bytes at a time.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// A convolution whose channels fill no vector of 16 bytes (3 of an RGB image) becomes one whose channels do: s
/// neighbours along the last dim become channels of one place, where s is the stride there, so that it is 1 afterwards;
/// channels are filled up with zeros where that is not enough. Source of the idea: "space to depth", as common for the
/// first layer of residual networks.
void fill_channels(Graph& g);

}  // namespace sardonyx
