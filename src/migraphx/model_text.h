// Listings of a model's nodes, and comparison of models.
#pragma once
#include <string>

#include "model/model.h"

namespace sardonyx::mgx {

/// One line for each constant and node, then the outputs:
///
///     y = Conv[group=1,pads=[0, 0, 0, 0]](x, w)
///     @return(y)
///
/// Nested graphs follow the node that holds them, indented. Different nodes give different text; constants show their
/// type and dims only.
std::string model_text(const model::Model& m);

/// Whether two models with the same text have the same constants.
bool same_weights(const model::Model& a, const model::Model& b);

}  // namespace sardonyx::mgx
