// The commands. Each prints its result on stdout and throws Error; see docs/command-line.md.
#pragma once
#include "cli/arguments.h"

namespace sardonyx::cli {

void run_command(const Arguments& arguments);
void verify_command(const Arguments& arguments);
void perf_command(const Arguments& arguments);
/// Throws Error(kInvalidArgument) unless the device is a simulated GPU, which --timing is for.
void require_simulated(const Arguments& arguments);
/// perf --timing.
void perf_timing_command(const Arguments& arguments);
void tune_command(const Arguments& arguments);
void compile_command(const Arguments& arguments);
void inspect_command(const Arguments& arguments);
void devices_command(const Arguments& arguments);
void cache_command(const Arguments& arguments);
/// The commands that run in Python: generate, convert-gguf, quantize, evaluate and onnxruntime. Returns only by an
/// error.
void language_command(const Arguments& arguments);

}  // namespace sardonyx::cli
