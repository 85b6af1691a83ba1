// Packs 8-bit matrices and divides their GEMM into panels of columns for the vector kernels.
#include "host/integer_gemm.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "host/gemm_problem.h"
#include "host/parallel.h"
#include "host/simd.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kRowChunk = 192;  // rows that one task computes: a multiple of every kernel's tile height

std::int64_t product(const std::vector<std::int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

/// The extents of a GEMM and of its packed operands.
struct Plan {
  GemmProblem problem;
  std::int64_t pairs, panels, batches_a, batches_b;
  std::size_t a_bytes, b_bytes;
};

Plan plan_of(const IntegerGemmDesc& d) {
  const auto is_byte = [](DType t) { return t == DType::kInt8 || t == DType::kUInt8; };
  check(is_byte(d.a) && is_byte(d.b), "an integer GEMM of {} and {}", name(d.a), name(d.b));
  GemmDesc shape;
  shape.batch_a = d.batch_a, shape.batch_b = d.batch_b;
  shape.m = d.m, shape.n = d.n, shape.k = d.k;
  Plan plan{simplify(shape), (d.k + 1) / 2, 0, product(d.batch_a), product(d.batch_b), 0, 0};
  const std::int64_t columns = simd().integer_columns;
  plan.panels = (d.n + columns - 1) / columns;
  const auto bytes = [](std::int64_t elements) {
    return (static_cast<std::size_t>(elements) * sizeof(std::int16_t) + 63) / 64 * 64;
  };
  plan.a_bytes = bytes(plan.batches_a * d.m * plan.pairs * 2);
  plan.b_bytes = bytes(plan.batches_b * plan.panels * plan.pairs * 2 * columns);
  return plan;
}

int zero_at(const void* zeros, DType type, ZeroPoints kind, std::int64_t i) {
  if (kind == ZeroPoints::kNone) return 0;
  if (kind == ZeroPoints::kOne) i = 0;
  return type == DType::kInt8 ? int{static_cast<const std::int8_t*>(zeros)[i]}
                              : int{static_cast<const std::uint8_t*>(zeros)[i]};
}

void pack_b(const IntegerGemmDesc& d, const Plan& plan, const void* b, const void* zero_b, std::int16_t* out) {
  const std::int64_t columns = simd().integer_columns, panel_size = plan.pairs * 2 * columns;
  const std::int64_t grain = std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, panel_size));
  parallel_for(plan.batches_b * plan.panels, grain, d.threads, [&](std::int64_t begin, std::int64_t end) {
    std::vector<int> zeros(static_cast<std::size_t>(columns));
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t first = task % plan.panels * columns, batch = task / plan.panels;
      const int here = static_cast<int>(std::min(columns, d.n - first));
      for (int j = 0; j < here; ++j) zeros[static_cast<std::size_t>(j)] = zero_at(zero_b, d.b, d.zero_b, first + j);
      const char* from = static_cast<const char*>(b) + batch * d.k * d.n + first * (d.trans_b ? d.k : 1);
      simd().pack_columns(from, d.b == DType::kInt8, d.trans_b ? 1 : d.n, d.trans_b ? d.k : 1, d.k, here, zeros.data(),
                          out + task * panel_size);
    }
  });
}

void pack_a(const IntegerGemmDesc& d, const Plan& plan, const void* a, const void* zero_a, std::int16_t* out) {
  const std::int64_t grain = std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, d.k));
  parallel_for(plan.batches_a * d.m, grain, d.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      simd().pack_row(static_cast<const char*>(a) + row * d.k, d.a == DType::kInt8, d.k,
                      zero_at(zero_a, d.a, d.zero_a, row % d.m), out + row * plan.pairs * 2, plan.pairs * 2);
    }
  });
}

}  // namespace

std::shared_ptr<const PackedIntegers> pack_integers(const IntegerGemmDesc& desc, const void* b, const void* zero_b) {
  const Plan plan = plan_of(desc);
  auto packed = std::make_shared<PackedIntegers>(plan.b_bytes);
  pack_b(desc, plan, b, zero_b, static_cast<std::int16_t*>(packed->data.data()));
  return packed;
}

std::size_t packed_integer_bytes(const IntegerGemmDesc& desc) { return plan_of(desc).b_bytes; }

void pack_integers(const IntegerGemmDesc& desc, const void* b, const void* zero_b, void* out) {
  pack_b(desc, plan_of(desc), b, zero_b, static_cast<std::int16_t*>(out));
}

std::size_t integer_gemm_scratch(const IntegerGemmDesc& desc, bool packed) {
  const Plan plan = plan_of(desc);
  return plan.a_bytes + (packed ? 0 : plan.b_bytes);
}

void integer_gemm(const IntegerGemmDesc& d, const IntegerGemmArgs& args) {
  const Plan plan = plan_of(d);
  const GemmProblem& p = plan.problem;
  auto* a = static_cast<std::int16_t*>(args.scratch);
  pack_a(d, plan, args.a, args.zero_a, a);
  const std::int16_t* b;
  if (args.panels) {
    b = static_cast<const std::int16_t*>(args.panels);
  } else if (args.packed) {
    check(args.packed->data.bytes() >= plan.b_bytes, "packed integers belong to another GEMM");
    b = static_cast<const std::int16_t*>(args.packed->data.data());
  } else {
    auto* target = reinterpret_cast<std::int16_t*>(static_cast<char*>(args.scratch) + plan.a_bytes);
    pack_b(d, plan, args.b, args.zero_b, target);
    b = target;
  }

  const std::int64_t columns = simd().integer_columns, depth = plan.pairs * 2;
  const std::int64_t chunks = (p.m + kRowChunk - 1) / kRowChunk;
  const std::int64_t task_work = std::max<std::int64_t>(1, std::min(p.m, kRowChunk) * columns * depth);
  const std::int64_t grain = std::max<std::int64_t>(1, 100000 / task_work);
  parallel_for(product(p.batch) * plan.panels * chunks, grain, d.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t chunk = task % chunks, panel = task / chunks % plan.panels,
                         batch = task / chunks / plan.panels;
      // The batch's index in each operand, from the last axis on.
      std::int64_t index_a = 0, index_b = 0, size_a = 1, size_b = 1, rest = batch;
      for (std::size_t i = p.batch.size(); i-- > 0;) {
        const std::int64_t at = rest % p.batch[i];
        rest /= p.batch[i];
        if (p.batch_a[i] != 1) index_a += at * size_a, size_a *= p.batch_a[i];
        if (p.batch_b[i] != 1) index_b += at * size_b, size_b *= p.batch_b[i];
      }
      const std::int64_t row = chunk * kRowChunk, first = panel * columns;
      simd().integer_product(std::min(kRowChunk, p.m - row), plan.pairs, a + (index_a * p.m + row) * depth, depth,
                             b + (index_b * plan.panels + panel) * depth * columns,
                             args.out + (batch * p.m + row) * d.n + first, d.n,
                             static_cast<int>(std::min(columns, d.n - first)));
    }
  });
}

}  // namespace sardonyx::host
