// What fusion may do for the host.
#include "tiles/match.h"

namespace sardonyx::tiles {

FuseOptions host_fuse_options() {
  FuseOptions o;
  o.widen_halves = true;
  o.attention_limits = true;
  o.transposed_constants = true;
  o.integer_tiles = true;
  o.integer_left = DType::kUInt8;
  o.untranspose = true;
  o.hoist_elementwise = true;
  o.merge_convolutions = true;
  o.compute_views = true;
  o.copy_viewed_images = true;
  o.split_reductions = true;
  o.few_threads = true;
  o.subpixel_outputs = 16;
  auto accepts = [](const TileKernel& k, std::string& why) {
    if (k.node->as<MatMulOp>()) return match_gemm(k, why).has_value();
    if (k.node->as<ConvOp>()) return match_conv(k, false, why).has_value();
    if (k.node->as<AttentionOp>()) return match_attention(k, why).has_value();
    return false;
  };
  o.accepts_epilogue = accepts;
  o.accepts_layout = [](const TileKernel& k, std::string& why) {
    return !k.node->as<ConvOp>() || match_conv(k, true, why).has_value();
  };
  o.accepts_tile = [accepts](const Node& n, std::string& why) {
    if (!n.as<MatMulOp>() && !n.as<ConvOp>() && !n.as<AttentionOp>()) return false;
    TileKernel k;
    k.node = const_cast<Node*>(&n);
    k.out = n.outputs[0];
    return accepts(k, why);
  };
  return o;
}

}  // namespace sardonyx::tiles
