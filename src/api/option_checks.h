// Checks of options before anything is compiled.
#pragma once
#include <string>

#include "api/model.h"

namespace sardonyx {

/// Threads for Options::threads or RunOptions::threads: 0 is all cores. Throws Error(kInvalidArgument).
int thread_count(int wanted);

/// The type in which values are stored between kernels, for checked options.
DType storage_of(const ModelOptions& options);

/// Checks that depend neither on the model nor on the target. Throws Error(kInvalidArgument).
void check_options(const ModelOptions& options);

/// Quantises a model if the precision has 8 bits. Throws Error: kInvalidArgument or kIo for the calibration table,
/// kUnsupported where `target` ("host", "gfx942") does not multiply such values.
QuantizationReport quantize(ModelSource& source, const ModelOptions& options, const std::string& target);

}  // namespace sardonyx
