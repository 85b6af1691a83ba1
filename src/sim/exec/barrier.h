// The workgroup barrier in its two halves; s_barrier is both.
#pragma once
#include "sim/exec/wave.h"

namespace sardonyx::sim {

/// The wave has arrived. When every live wave has, the barrier's phase ends.
void signalBarrier(Wave& w);
/// The wave blocks until the phase that it signalled has ended.
void waitBarrier(Wave& w);

}  // namespace sardonyx::sim
