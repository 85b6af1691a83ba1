// What steps consist of, derived from the fields that are written to program files (fields.h): a new kind of step is
// visited without further code.
#pragma once
#include <functional>
#include <vector>

#include "program/program.h"

namespace sardonyx {

/// Every expression of a step that is not empty, ProgramStep::when included; those of nested blocks are not.
void for_expressions(const ProgramStep& step, const std::function<void(const Expr&)>& f);
/// Every launch of generated code that a step may make, in order; not those of nested blocks.
void for_launches(const ProgramStep& step, const std::function<void(const LaunchStep&)>& f);
/// The blocks that a step runs: control flow has some, other steps have none.
std::vector<const Block*> blocks_of(const ProgramStep& step);
inline bool is_control(const ProgramStep& step) { return !blocks_of(step).empty(); }
/// Every step of a block and, after it, those of its nested blocks.
void for_steps(const Block& block, const std::function<void(const ProgramStep&)>& f);

/// See LaunchStep::limit; empty if there is none.
Expr limit_of(const ProgramStep& step);
/// Whether the step runs; also true where the values of its condition's symbols are not known.
bool may_run(const ProgramStep& step, const SymbolValues& symbols);
/// Temporaries that only this step uses.
std::vector<int> working_memory(const ProgramStep& step);

}  // namespace sardonyx
