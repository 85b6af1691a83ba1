// out_of_half(): which nodes need more than float16's range; see quantize.h.
#include "support/half_range.h"

#include <fmt/format.h>

#include <functional>
#include <set>

#include "import/quantize.h"

namespace sardonyx {

QuantizationReport out_of_half(const model::Model& model, const std::map<std::string, float, std::less<>>& largest) {
  const std::set<std::string, std::less<>> products = {"MatMul", "Gemm", "Conv", "ConvTranspose"};
  QuantizationReport report;
  const auto beyond = [&](const std::string& name) {
    const auto at = largest.find(name);
    return at != largest.end() && at->second > kHalfRange ? at->second : 0.0F;
  };
  const std::function<void(const model::Graph&)> visit = [&](const model::Graph& g) {
    for (const model::Node& n : g.nodes) {
      for (const auto& [name, a] : n.attributes) {
        if (const auto* one = std::get_if<model::GraphPtr>(&a)) visit(**one);
        if (const auto* many = std::get_if<std::vector<model::GraphPtr>>(&a))
          for (const model::GraphPtr& p : *many) visit(*p);
      }
      const bool product = n.domain.empty() && products.count(n.op_type);
      std::string why;
      for (const std::string& o : n.outputs)
        if (const float x = beyond(o); x > 0 && why.empty()) why = fmt::format("its result '{}' reaches {:.3g}", o, x);
      if (product)
        for (std::size_t k = 0; k < 2 && k < n.inputs.size(); ++k)
          if (const float x = beyond(n.inputs[k]); x > 0 && why.empty())
            why = fmt::format("its operand '{}' reaches {:.3g}", n.inputs[k], x);
      if (!why.empty())
        report.in_float.push_back(n.describe() + ": " + why);
      else if (product)
        ++report.quantized;
    }
  };
  visit(model.graph);
  return report;
}

}  // namespace sardonyx
