// A front end for a toy format: a model as text, one statement a line. '#' starts a comment.
//
//   input x float32 batch 4           dtype; dims are sizes or names
//   weight w 4 2 = 1 2 3 4 5 6 7 8    dims and elements, in float32
//   h = MatMul x w                    an operator of docs/operators.md; "-" omits an input
//   y = Transpose h perm:[1,0]        attributes: integers, floats (with a point), lists of integers, words
//   output y
#pragma once
#include <memory>
#include <string_view>

#include "import/model_source.h"

namespace sardonyx {

/// Throws Error(kInvalidModel), naming the line. Operators are checked when the model is imported.
std::unique_ptr<ModelSource> parse_toy(std::string_view text);

}  // namespace sardonyx
