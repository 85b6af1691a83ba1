// Which attention GPUs have kernels for. See attention_codegen.h.
#include <utility>

#include "codegen/attention_codegen.h"
#include "graph/analysis.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kMaxHead = 256;   // elements of a head: more do not fit into registers
constexpr std::size_t kMaxBuffers = 24;  // tensors that a mask may read
constexpr std::size_t kMaxRead = 4;      // tensors that an epilogue may read, with attention's result

bool matrix_type(DType t) { return t == DType::kFloat32 || t == DType::kFloat16 || t == DType::kBFloat16; }

// Whether the epilogue computes bytes, with few other tensors.
bool rounds_to_bytes(const TileKernel& kernel) {
  const Value *from = kernel.node->outputs[0], *to = kernel.out;
  if (size_of(to->dtype) != 1 || to->dtype == DType::kBool || from->rank() != to->rank()) return false;
  for (int k = 0; k < from->rank(); ++k)
    if (!idx::provably_equal(from->shape[k], to->shape[k])) return false;
  return !kernel.epilogue->has_reduce && loads_of(kernel.epilogue).size() <= kMaxRead;
}

}  // namespace

Expr attention_result(const TileKernel& kernel, const Expr& x) {
  const Value* from = kernel.node->outputs[0];
  if (!kernel.epilogue) return cast(x, kernel.out->dtype);
  return rewrite(kernel.epilogue, [&](const Expr& e) -> Expr {
    if (e->op == Op::kCast && e->args[0]->op == Op::kLoad && e->args[0]->value == from)
      return cast(x, e->dtype, e->i);  // what is not stored is not rounded to the stored type
    return e->op == Op::kLoad && e->value == from ? cast(x, e->dtype) : Expr();
  });
}

bool gpu_takes_attention(const TileKernel& kernel, std::string& why) {
  const auto* a = kernel.node->as<AttentionOp>();
  std::int64_t d = 0, e = 0;
  if (!a || (kernel.epilogue && !rounds_to_bytes(kernel))) {
    why = "attention's epilogue can only round its result to 8 bits";
    return false;
  }
  for (const auto& [x, scale] : {std::pair(a->q, Expr()), std::pair(a->k, a->k_scale), std::pair(a->v, a->v_scale)})
    if (x->op != Op::kLoad || !matrix_type(scale ? a->q->dtype : x->dtype) || (!scale && x->dtype != a->q->dtype)) {
      why = "attention takes tensors in memory, all float32, float16 or bfloat16";
      return false;
    }
  if ((!kernel.epilogue && !matrix_type(kernel.out->dtype)) || !is_const(a->scale)) {
    why = "attention's result or scale is of another kind";
    return false;
  }
  if (!is_const_int(a->vars[4]->args[0], d) || !is_const_int(a->vars[5]->args[0], e) || d < 1 || e < 1 ||
      d > kMaxHead || e > kMaxHead) {
    why = "attention takes heads of a known size up to 256";
    return false;
  }
  std::size_t buffers = 4;
  for (const Expr& x : {a->k_scale, a->v_scale, a->bias, a->begin, a->end, a->sink}) {
    if (!x) continue;
    buffers += loads_of(x).size();
    if (x->has_reduce) {
      why = "a reduction in a mask";
      return false;
    }
  }
  if (buffers > kMaxBuffers) {
    why = "a mask of too many tensors";
    return false;
  }
  return true;
}

}  // namespace sardonyx::codegen
