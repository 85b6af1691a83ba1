// Gives up candidates of choices that save a model little time beside what their kernels take to compile.
#pragma once
#include "program/program.h"
#include "target/chip.h"

namespace sardonyx {

/// Drops kernels of GEMMs and convolutions, the least useful for their time to compile first, as long as the estimated
/// time of all of them together grows by less than the share `loss`, and that of none to more than twice, for all sizes
/// that are tried: symbols as powers of two, all alike or one of them alone. Choices with measured sizes
/// (Choice::tuned) keep all. Every choice keeps a candidate for each size, and one for any number of rows if it had
/// one. Kernels that no step launches any more are removed, and the others renumbered.
///
/// A choice by itself does not know its share of a model's time: the GEMM behind the pooling of a BERT, which has one
/// row for each sequence, had 10 of the model's 59 kernels.
void drop_candidates(Program& program, const Chip& chip, double loss);

}  // namespace sardonyx
