// The table of routines.
#include "routines/routine.h"

#include <map>

#include "routines/families.h"

namespace sardonyx::routines {

Fn find(std::string_view name) {
  static const std::map<std::string_view, Fn> table = [] {
    std::map<std::string_view, Fn> t;
    register_all(t);
    return t;
  }();
  auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace sardonyx::routines
