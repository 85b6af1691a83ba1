// One registration function per file of routines. A new file adds its line here and to register_all.
#pragma once
#include <map>
#include <string_view>

#include "routines/routine.h"

namespace sardonyx::routines {

using Table = std::map<std::string_view, Fn>;

void register_recurrent(Table& t);

inline void register_all(Table& t) {
  register_recurrent(t);
}

}  // namespace sardonyx::routines
