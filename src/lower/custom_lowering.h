// Lowers routines with launches: operators that users have defined, on every device.
#pragma once
#include <vector>

#include "fuse/schedule.h"
#include "lower/program_builder.h"

namespace sardonyx {

/// Appends a step for each launch; false for any other node.
bool lower_custom(const Step& step, ProgramBuilder& builder, bool gpu, std::vector<ProgramStep>& out);

}  // namespace sardonyx
