// Internal to fuse/: which quantised values a tile kernel should store instead of computing on.
#pragma once
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fuse/options.h"

namespace sardonyx {

/// The quantised results of GEMMs, convolutions and attention of a graph that the kernel should store as bytes. The
/// graph may change while this is used, as long as nodes are neither added nor removed.
class ByteStores {
 public:
  explicit ByteStores(const Graph& g);

  /// Whether v is a tile kernel's result, quantised to 8 bits by its last loop, which something else than the rest of
  /// the kernel's epilogue reads: a reduction (pooling), several loops, or the epilogue of another tile kernel (as the
  /// sum of two convolutions). Otherwise the epilogue can go on with the dequantised value, and nothing stores v.
  bool stores(const Value* v) const;

 private:
  const Node* tile_before(const Value* v, bool& rounds, int depth) const;
  const std::vector<const Node*>& readers(const Value* v) const;
  bool other_epilogue(const Node& reader, const Value* at, const Node* tile) const;

  const Graph& g_;
  std::unordered_map<const Value*, std::vector<const Node*>> readers_;  // by storage, without views
  std::unordered_map<const Node*, std::size_t> position_;
  std::unordered_set<const Value*> required_;
  std::unordered_set<const Node*> constants_;
};

}  // namespace sardonyx
