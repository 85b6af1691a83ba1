// The table from mnemonic to handler. Each family file defines one add...() function, called from table.cpp.
#pragma once
#include <string_view>
#include <vector>

#include "sim/isa/inst.h"

namespace sardonyx::sim {

/// Collects handlers by mnemonic.
class OpTable {
 public:
  /// `names`: the mnemonics of AMD's ISA documents without encoding suffix (_e32, _e64, _dpp, _sdwa), separated by '|'
  /// where chips have different names for an operation: "global_load_dword|global_load_b32". A second registration of a
  /// name throws.
  void add(std::string_view names, Handler fn, std::uint32_t flags = 0);
};

/// Handler of `mnemonic`, or nullptr when no family has it.
const OpInfo* findOp(std::string_view mnemonic);
/// All registered mnemonics, sorted, for the list of what is covered.
std::vector<std::string_view> allOps();

}  // namespace sardonyx::sim
