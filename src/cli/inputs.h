// The inputs of one run: from files, or generated.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "api/model.h"
#include "cli/arguments.h"
#include "tensor_files/tensor_files.h"

namespace sardonyx::cli {

struct Inputs {
  std::map<std::string, Tensor> tensors;
  std::vector<std::string> generated;  ///< names of inputs without a file
};

/// Inputs for a model with the inputs `wanted`. Sizes of symbolic dims come from files' tensors, then from `dims`.
/// Generated values depend only on the seed, the input's name and the element's position. Throws
/// Error(kInvalidArgument) that names the input and the option to use: an unknown name, a wrong dtype or rank, a dim
/// without a size.
Inputs make_inputs(const std::vector<TensorInfo>& wanted, const InputArguments& arguments,
                   std::map<std::string, std::int64_t> dims);

}  // namespace sardonyx::cli
