#include "migraphx/operators.h"

#include <algorithm>
#include <map>

#include "support/error.h"
#include "support/text.h"

namespace sardonyx::mgx {
namespace {

const std::map<std::string, const OperatorRule*>& table() {
  static const std::map<std::string, const OperatorRule*> rules = [] {
    std::map<std::string, const OperatorRule*> all;
    for (const auto list : {pointwise_operators(), movement_operators(), index_operators(), layer_operators(),
                            module_operators(), macro_operators()})
      for (const OperatorRule& rule : list)
        check(all.emplace(rule.name, &rule).second, "two rules for the operator {}", rule.name);
    return all;
  }();
  return rules;
}

}  // namespace

const OperatorRule& operator_rule(const std::string& name) {
  const auto found = table().find(name);
  if (found != table().end()) return *found->second;
  fail(ErrorKind::kUnsupported,
       "the operator {} can't be added to a graph (docs/migraphx.md lists those that can); parse an ONNX model instead",
       quote(name));
}

std::vector<std::string> operator_names() {
  std::vector<std::string> names;
  for (const auto& [name, rule] : table())
    if (name.find(':') == std::string::npos) names.push_back(name);
  return names;
}

}  // namespace sardonyx::mgx
