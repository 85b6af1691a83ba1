// Softmax in a host kernel of several stages: the largest score of a row, the sum of exponentials, the quotients.
#pragma once
#include <optional>
#include <vector>

#include "fuse/schedule.h"

namespace sardonyx::codegen {

/// Rewrites exponentials of a row's float32 scores minus their maximum, which a stage of the kernel computes, so that
/// results below exp(-87) are 0: a mask of -100 would make them subnormal, and an Intel CPU takes some 150 cycles for
/// each vector of such results, and again for each product with them. `bodies` are those of the stages, with flat
/// loads.
void flush_small_exponentials(const std::vector<Stage>& stages, std::vector<Expr>& bodies);

/// Exponentials that a stage adds up and that a later stage needs again.
struct KeptTerms {
  Expr sum;    ///< the reduction, over one variable
  Expr again;  ///< the terms as the later stage has them
  Expr var;    ///< of that stage, the place in the row
  std::size_t stage = 0;
  std::int64_t count = 0;
};
/// The first such sum of bodies[stage] that has few enough terms for an array in the L1 cache.
std::optional<KeptTerms> find_kept_terms(const std::vector<Stage>& stages, const std::vector<Expr>& bodies,
                                         std::size_t stage);

}  // namespace sardonyx::codegen
