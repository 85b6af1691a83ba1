// Checks of options before anything is compiled.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "api/model.h"

namespace sardonyx {

/// Threads for Options::threads or RunOptions::threads: 0 is all cores. Throws Error(kInvalidArgument).
int thread_count(int wanted);

/// The type in which values are stored between kernels, for checked options.
DType storage_of(const ModelOptions& options);

/// Checks that depend neither on the model nor on the target. Throws Error(kInvalidArgument).
void check_options(const ModelOptions& options);

/// The ranges in the calibration table of precision fp16, for BuildOptions; null if there is none. Throws Error as
/// read_calibration does.
std::shared_ptr<const std::map<std::string, float, std::less<>>> half_ranges(const ModelOptions& options);

/// Quantises a model if the precision has 8 bits; with fp16 and a calibration table, reports what stays in float32.
/// Throws Error: kInvalidArgument or kIo for the calibration table, kUnsupported where `target` ("host", "gfx942") does
/// not multiply such values.
QuantizationReport quantize(ModelSource& source, const ModelOptions& options, const std::string& target);

}  // namespace sardonyx
