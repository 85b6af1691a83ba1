// Builds the table of handlers once, from every family.
#include "sim/ops/table.h"

#include <algorithm>
#include <deque>
#include <string>
#include <unordered_map>

#include "sim/ops/families.h"
#include "support/error.h"

namespace sardonyx::sim {
namespace {

struct Storage {
  std::deque<std::string> names;
  std::deque<OpInfo> infos;
  std::unordered_map<std::string_view, const OpInfo*> byName;
};

Storage& storage() {
  static Storage* s = new Storage;  // never destroyed: kernels may still run while the process exits
  return *s;
}

const Storage& table() {
  static const bool built = [] {
    OpTable t;
    addAllFamilies(t);
    return true;
  }();
  (void)built;
  return storage();
}

}  // namespace

void OpTable::add(std::string_view names, Handler fn, std::uint32_t flags) {
  Storage& s = storage();
  while (!names.empty()) {
    std::size_t bar = names.find('|');
    s.names.emplace_back(names.substr(0, bar));
    s.infos.push_back({s.names.back().c_str(), fn, flags});
    check(s.byName.emplace(s.names.back(), &s.infos.back()).second, "instruction {} has two handlers", s.names.back());
    names = bar == std::string_view::npos ? std::string_view() : names.substr(bar + 1);
  }
}

const OpInfo* findOp(std::string_view mnemonic) {
  const Storage& s = table();
  auto it = s.byName.find(mnemonic);
  return it == s.byName.end() ? nullptr : it->second;
}

std::vector<std::string_view> allOps() {
  std::vector<std::string_view> out;
  for (const auto& [name, info] : table().byName) out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace sardonyx::sim
