// How the kernels of recurrent layers divide a layer among workgroups of a chip.
#pragma once
#include <cstdint>
#include <optional>

#include "target/chip.h"

namespace sardonyx::codegen {

/// Of routines_recurrent_scan.h: weights as float32 or float16, `held` fours of rows in registers and the others in
/// shared memory.
struct RecurrentDivision {
  std::int64_t hidden = 0, slices = 0, cluster = 0, held = 0;
  std::int64_t shared = 0;  ///< bytes of the weights there
  bool halves = false;
};
/// Empty: the weights do not fit. narrow: the model's weights have 16 bits.
std::optional<RecurrentDivision> recurrent_division(const Chip& chip, std::int64_t gates, std::int64_t hidden,
                                                    bool narrow);
/// Workgroups that certainly run at once. Those of a part of the multiprocessors may not fit.
std::int64_t workgroups_at_once(const Chip& chip, const RecurrentDivision& n);

/// Sequences of a workgroup of routines_recurrent_tiles.h; empty: the chip has no matrix instructions for float16, or
/// the weights do not fit the registers.
std::optional<std::int64_t> sequences_of_tiles(const Chip& chip, std::int64_t gates, std::int64_t hidden);
/// Up to so many sequences of all directions, routines_recurrent_scan.h is faster.
std::int64_t few_sequences(const Chip& chip);

}  // namespace sardonyx::codegen
