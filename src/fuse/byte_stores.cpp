// See byte_stores.h.
#include "fuse/byte_stores.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr int kMostLoops = 12;  // of an epilogue that is looked through

bool is_byte(DType t) { return size_of(t) == 1 && t != DType::kBool; }
bool is_tile(const Node* n) { return n && (n->as<MatMulOp>() || n->as<ConvOp>() || n->as<AttentionOp>()); }

}  // namespace

ByteStores::ByteStores(const Graph& g) : g_(g), constants_(constant_nodes(g)) {
  for (const Value* v : required_values(g)) required_.insert(storage_of(v));
  for (const auto& n : g.nodes) {
    position_.emplace(n.get(), position_.size());
    if (n->as<ViewOp>()) continue;
    for (const Value* v : n->inputs) {
      auto& list = readers_[storage_of(v)];
      if (std::find(list.begin(), list.end(), n.get()) == list.end()) list.push_back(n.get());
    }
  }
}

const std::vector<const Node*>& ByteStores::readers(const Value* v) const {
  static const std::vector<const Node*> none;
  const auto at = readers_.find(storage_of(v));
  return at == readers_.end() ? none : at->second;
}

// The tile kernel whose result reaches v by loops that nothing else reads, so that v can be part of its epilogue; null
// if there is none. `rounds`: whether one of these values has 8 bits.
const Node* ByteStores::tile_before(const Value* v, bool& rounds, int depth) const {
  v = storage_of(v);
  if (depth > kMostLoops || v->graph != &g_ || required_.count(v) || readers(v).size() != 1) return nullptr;
  if (is_tile(v->producer)) return v->producer;
  const auto* l = v->producer ? v->producer->as<LoopOp>() : nullptr;
  if (!l || l->body->has_reduce) return nullptr;
  rounds |= is_byte(v->dtype);
  for (const Value* x : loads_of(l->body))
    if (const Node* tile = tile_before(x, rounds, depth + 1)) return tile;
  return nullptr;
}

// Whether a loop reads another tile kernel's result too, and is rather that one's epilogue. Of two that are both
// rounded, the later one takes the loop.
bool ByteStores::other_epilogue(const Node& reader, const Value* at, const Node* tile) const {
  for (const Value* x : loads_of(reader.as<LoopOp>()->body)) {
    bool rounds = false;
    const Node* other = storage_of(x) == storage_of(at) ? nullptr : tile_before(x, rounds, 0);
    if (other && other != tile && (!rounds || position_.at(other) > position_.at(tile))) return true;
  }
  return false;
}

bool ByteStores::stores(const Value* v) const {
  const auto* l = v->producer ? v->producer->as<LoopOp>() : nullptr;
  if (!l || !is_byte(v->dtype) || constants_.count(v->producer)) return false;
  bool rounds = false;
  const Node* tile = tile_before(v, rounds, 0);
  if (!tile) return false;
  const Value* at = v;
  for (int depth = 0; depth < kMostLoops; ++depth) {
    const auto& next = readers(at);
    if (next.size() != 1) return at != v && next.size() > 1;
    const auto* reader = next[0]->as<LoopOp>();
    if (!reader) return false;
    if (depth == 0 && is_byte(next[0]->outputs[0]->dtype)) return false;  // of two 8-bit forms the later one
    if (reader->body->has_reduce || other_epilogue(*next[0], at, tile)) return true;
    at = next[0]->outputs[0];
  }
  return false;
}

}  // namespace sardonyx
