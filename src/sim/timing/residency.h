// What a launch of which only a part was recorded leaves in the device's caches.
#pragma once
#include <vector>

#include "sim/timing/caches.h"

namespace sardonyx::sim::timing {

/// Follows from the recorded workgroups' lines: each allocation's range that they touched is taken to go on at the same
/// rate for the workgroups that were not recorded (`scale` times as many), up to the end of the allocation. Caches that
/// hold less than all ranges together are emptied; what fits the Infinity Cache is noted as resident there.
void leaveBehind(DeviceCaches& caches, const std::vector<GroupTrace*>& recorded, double scale);

}  // namespace sardonyx::sim::timing
