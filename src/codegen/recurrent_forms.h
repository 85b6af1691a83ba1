// How the kernels of recurrent layers divide a layer among workgroups of a chip.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "codegen/gpu_routines.h"
#include "graph/graph.h"
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

/// Of a workgroup of routines_recurrent.h: threads of a unit, and weights that are loaded at once.
struct RecurrentStepDivision {
  std::int64_t threads = 0, vector = 1;
};
/// hidden: 0 if it is not known.
RecurrentStepDivision step_division(const Chip& chip, DType weights, std::int64_t directions, std::int64_t hidden);

/// What is known of a layer, the routine "recurrent".
struct RecurrentLayer {
  std::int64_t kind = 0, variant = 0, directions = 0, gates = 0;
  std::int64_t hidden = 0;  ///< 0: unknown
  bool two_phases = false;  ///< a GRU without linear_before_reset
  std::optional<RecurrentDivision> scan;
  std::optional<std::int64_t> tiles;  ///< sequences of a workgroup
  bool steps = false;                 ///< some sizes have a launch for each step
  /// For more sequences of all directions, each step is a launch of routines_recurrent_step_tiles.h; 0: never.
  std::int64_t many = 0;
};
/// Empty: not this routine, or not one of those that GPUs run. narrow: the model's weights have 16 bits.
std::optional<RecurrentLayer> recurrent_layer(const Node& node, const Chip& chip, bool narrow);
/// The constant `layer` of its kernels, whose elements have type t.
std::string text_of_layer(const RoutineOp& op, const RecurrentLayer& l, DType t);
/// The recurrent weights w, [D, H, gates * H], as [D, gates, H, H] of type t.
GpuRoutine::Rearranged untransposed_weights(const Value& w, const RecurrentLayer& l, DType t);

}  // namespace sardonyx::codegen
