// Names of GPU kernels, which profilers show.
#pragma once
#include <string>
#include <vector>

#include "program/program.h"

namespace sardonyx {

/// The names of a program's kernels: the id, the nodes of the model that the first launch computes, without their
/// types, and the number of launches if there are several: "k4_layer2_conv_layer2_relu_x2". Of nodes that do not fit
/// into kKernelNameLength only the number is named, and of a name that does not fit the end. The names are identifiers.
std::vector<std::string> kernel_names(const Program& program);

}  // namespace sardonyx
