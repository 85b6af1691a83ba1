// Visitors of steps, derived from the fields that are written to program files (fields.h). A new kind of step needs no
// further code.
#pragma once
#include <functional>
#include <vector>

#include "program/program.h"

namespace sardonyx {

/// All non-empty expressions of a step, including ProgramStep::when, except those of nested blocks.
void for_expressions(const ProgramStep& step, const std::function<void(const Expr&)>& f);
/// All launches of generated code that a step may make, in order, except those of nested blocks.
void for_launches(const ProgramStep& step, const std::function<void(const LaunchStep&)>& f);
/// The blocks that a control-flow step runs; empty for other steps.
std::vector<const Block*> blocks_of(const ProgramStep& step);
inline bool is_control(const ProgramStep& step) { return !blocks_of(step).empty(); }
/// All steps of a block, each followed by those of its nested blocks.
void for_steps(const Block& block, const std::function<void(const ProgramStep&)>& f);

/// The same, for changing them.
void for_launches(ProgramStep& step, const std::function<void(LaunchStep&)>& f);
void for_steps(Block& block, const std::function<void(ProgramStep&)>& f);

/// See LaunchStep::limit; empty if there is none.
Expr limit_of(const ProgramStep& step);
/// Whether the step runs; also true if its condition has symbols without a value.
bool may_run(const ProgramStep& step, const SymbolValues& symbols);
/// Temporaries that only this step uses: its workspace.
std::vector<int> working_memory(const ProgramStep& step);

}  // namespace sardonyx
