// The part of `sardonyx inspect` that shows passes of the optimiser and their remarks.
#pragma once
#include <nlohmann/json.hpp>

#include "cli/arguments.h"

namespace sardonyx::cli {

/// Adds "passes" ([{pass, nested, text}], the graph after each pass that changed it, "import" first) and "remarks"
/// ([{pass, node, reason, values}]) to a report, if --passes, --remarks or --html asks for them. The model is imported
/// again, since a compiled one no longer has all its weights. `target`: of the program.
/// Throws Error(kInvalidArgument) for a compiled program, kUnsupported if the graph depends on an input's value; with
/// --html alone that is noted as "passes_error".
void add_passes(nlohmann::ordered_json& report, const Arguments& arguments, const std::string& target);

/// Prints what --passes and --remarks ask for.
void print_passes(const nlohmann::ordered_json& report, const Arguments& arguments);

}  // namespace sardonyx::cli
