// MIGraphX's operators in terms of ONNX's: a table, in files by kind of operator, in which a row says how an
// instruction becomes ONNX nodes.
#pragma once
#include <span>
#include <string>
#include <vector>

namespace sardonyx::mgx {

class Emitter;

struct OperatorRule {
  const char* name;
  int least, most;       ///< numbers of inputs; most < 0: any
  const char* defaults;  ///< the attributes with MIGraphX's defaults, as JSON
  void (*emit)(Emitter&);
  const char* onnx = "";  ///< for emit functions that serve several rows: ONNX's operator
};

/// Throws Error(kUnsupported) for an operator that can't be offered.
const OperatorRule& operator_rule(const std::string& name);
/// In alphabetical order.
std::vector<std::string> operator_names();

std::span<const OperatorRule> pointwise_operators();
std::span<const OperatorRule> movement_operators();
std::span<const OperatorRule> index_operators();
std::span<const OperatorRule> layer_operators();
std::span<const OperatorRule> module_operators();
/// What MIGraphX's interface calls macros: whole ONNX operators, with several instructions there. Their names begin
/// with "macro:".
std::span<const OperatorRule> macro_operators();

}  // namespace sardonyx::mgx
