// Building IfOp and WhileOp nodes.
#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "ops/op.h"

namespace sardonyx {

/// The outputs of a loop's body.
struct LoopBody {
  std::vector<Value*> carried, stacked;
  Value* condition = nullptr;  ///< of the next iteration (bool, one element); null: true
};

struct LoopResult {
  std::vector<Value*> carried, stacked;
};

/// Appends a WhileOp. `make` fills a body (and may be called several times, until the shapes of the carried values are
/// stable): it gets the iteration number and the carried tensors. An empty `trip_count` or `condition` means none.
using MakeBody = std::function<LoopBody(Graph& body, const Expr& iteration, const std::vector<Value*>& carried)>;
LoopResult add_while(OpContext& c, const std::vector<Value*>& initial, const Expr& trip_count, const Expr& condition,
                     const MakeBody& make);

/// A bool (or integer) tensor of one element as an expression over symbols: its known content, or a symbol that is read
/// at run time.
Expr truth(OpContext& c, Graph& g, Value* v);

/// The nested graph in attribute `name`. A missing one makes the model invalid.
model::GraphPtr body_of(OpContext& c, std::string_view name);

}  // namespace sardonyx
