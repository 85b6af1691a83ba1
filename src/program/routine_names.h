// Names of routines that the runtime handles in a special way.
#pragma once
#include <string_view>

namespace sardonyx {

/// Collectives of a group of processes (sardonyx/communicator.h); params: the number of processes, 0 for any.
///   all_reduce: x -> the sum of all processes' x
///   all_gather: x [...] -> [processes, ...]
inline bool is_collective(std::string_view routine) { return routine == "all_reduce" || routine == "all_gather"; }

/// append, append_rows: copy new rows into the buffer of an input, which is the result, if the caller gives it that
/// memory.
inline bool appends_in_place(std::string_view routine) {
  return routine == "append" || routine == "append_rows" || routine == "append_own_rows";
}

}  // namespace sardonyx
