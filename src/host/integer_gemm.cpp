// Packs 8-bit matrices and divides their GEMM into panels of columns for the vector kernels.
#include "host/integer_gemm.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "host/gemm_problem.h"
#include "host/integer_kernels.h"
#include "host/parallel.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kRowChunk = 192;  // rows that one task computes: a multiple of every kernel's tile height
// A right operand that fits in half of a small L2 cache stays there while rows of results are completed one after
// another.
constexpr std::int64_t kResidentBytes = 512 << 10;

std::int64_t product(const std::vector<std::int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

/// The extents of a GEMM and of its packed operands.
struct Plan {
  GemmProblem problem;
  std::int64_t depth, panels, batches_a, batches_b;
  std::int64_t a_row;                       // elements from one packed row of a to the next
  std::size_t a_bytes, row_bytes, b_bytes;  // packed a, what corrects its rows, packed b
};

Plan plan_of(const IntegerGemmDesc& d) {
  const auto is_byte = [](DType t) { return t == DType::kInt8 || t == DType::kUInt8; };
  check(is_byte(d.a) && is_byte(d.b), "an integer GEMM of {} and {}", name(d.a), name(d.b));
  GemmDesc shape;
  shape.batch_a = d.batch_a, shape.batch_b = d.batch_b;
  shape.m = d.m, shape.n = d.n, shape.k = d.k;
  const IntegerKernels& kernels = integer_kernels();
  Plan plan{simplify(shape), kernels.depth(d.k), 0, product(d.batch_a), product(d.batch_b), 0, 0, 0, 0};
  plan.panels = (d.n + kernels.columns - 1) / kernels.columns;
  // Rows whose distance is a multiple of 512 bytes would compete for the same sets of the L1 cache.
  plan.a_row = plan.depth + (kernels.bytes && d.k >= 128 && plan.depth % 512 == 0 ? 64 : 0);
  const auto aligned = [](std::int64_t bytes) { return (static_cast<std::size_t>(bytes) + 63) / 64 * 64; };
  const std::int64_t rows = plan.batches_a * d.m;
  plan.a_bytes = aligned(rows * plan.a_row * kernels.element());
  plan.row_bytes = kernels.bytes ? aligned(rows * static_cast<std::int64_t>(sizeof(IntegerRow))) : 0;
  plan.b_bytes = aligned(plan.batches_b * plan.panels * kernels.panel_bytes(d.k));
  return plan;
}

int zero_at(const void* zeros, DType type, ZeroPoints kind, std::int64_t i) {
  if (kind == ZeroPoints::kNone) return 0;
  if (kind == ZeroPoints::kOne) i = 0;
  return type == DType::kInt8 ? int{static_cast<const std::int8_t*>(zeros)[i]}
                              : int{static_cast<const std::uint8_t*>(zeros)[i]};
}

void pack_b(const IntegerGemmDesc& d, const Plan& plan, const void* b, const void* zero_b, std::byte* out) {
  const IntegerKernels& kernels = integer_kernels();
  const std::int64_t columns = kernels.columns, panel_size = kernels.panel_bytes(d.k);
  const std::int64_t grain = std::max<std::int64_t>(1, 131072 / std::max<std::int64_t>(1, panel_size));
  parallel_for(plan.batches_b * plan.panels, grain, d.threads, [&](std::int64_t begin, std::int64_t end) {
    std::vector<int> zeros(static_cast<std::size_t>(columns));
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t first = task % plan.panels * columns, batch = task / plan.panels;
      const int here = static_cast<int>(std::min(columns, d.n - first));
      for (int j = 0; j < here; ++j) zeros[static_cast<std::size_t>(j)] = zero_at(zero_b, d.b, d.zero_b, first + j);
      const char* from = static_cast<const char*>(b) + batch * d.k * d.n + first * (d.trans_b ? d.k : 1);
      kernels.pack_columns(from, d.b == DType::kInt8, d.trans_b ? 1 : d.n, d.trans_b ? d.k : 1, d.k, plan.depth, here,
                           zeros.data(), out + task * panel_size);
    }
  });
}

void pack_a(const IntegerGemmDesc& d, const Plan& plan, const void* a, const void* zero_a, std::byte* out,
            IntegerRow* corrections) {
  const IntegerKernels& kernels = integer_kernels();
  const std::int64_t grain = std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, d.k));
  const bool is_signed = d.a == DType::kInt8;
  parallel_for(plan.batches_a * d.m, grain, d.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::byte* to = out + row * plan.a_row * kernels.element();
      const int zero = zero_at(zero_a, d.a, d.zero_a, row % d.m);
      kernels.pack_row(static_cast<const char*>(a) + row * d.k, is_signed, d.k, zero, to, plan.depth);
      if (corrections) corrections[row] = {kernels.packed_zero(zero, is_signed), kernels.row_sum(to, d.k)};
    }
  });
}

}  // namespace

std::shared_ptr<const PackedIntegers> pack_integers(const IntegerGemmDesc& desc, const void* b, const void* zero_b) {
  const Plan plan = plan_of(desc);
  auto packed = std::make_shared<PackedIntegers>(plan.b_bytes);
  pack_b(desc, plan, b, zero_b, static_cast<std::byte*>(packed->data.data()));
  return packed;
}

std::size_t packed_integer_bytes(const IntegerGemmDesc& desc) { return plan_of(desc).b_bytes; }

void pack_integers(const IntegerGemmDesc& desc, const void* b, const void* zero_b, void* out) {
  pack_b(desc, plan_of(desc), b, zero_b, static_cast<std::byte*>(out));
}

std::size_t integer_gemm_scratch(const IntegerGemmDesc& desc, bool packed) {
  const Plan plan = plan_of(desc);
  return plan.a_bytes + plan.row_bytes + (packed ? 0 : plan.b_bytes);
}

void integer_gemm(const IntegerGemmDesc& d, const IntegerGemmArgs& args) {
  const Plan plan = plan_of(d);
  const GemmProblem& p = plan.problem;
  const IntegerKernels& kernels = integer_kernels();
  auto* a = static_cast<std::byte*>(args.scratch);
  auto* corrections = kernels.bytes ? reinterpret_cast<IntegerRow*>(a + plan.a_bytes) : nullptr;
  pack_a(d, plan, args.a, args.zero_a, a, corrections);
  const std::byte* b;
  if (args.panels) {
    b = static_cast<const std::byte*>(args.panels);
  } else if (args.packed) {
    check(args.packed->data.bytes() >= plan.b_bytes, "packed integers belong to another GEMM");
    b = static_cast<const std::byte*>(args.packed->data.data());
  } else {
    std::byte* target = a + plan.a_bytes + plan.row_bytes;
    pack_b(d, plan, args.b, args.zero_b, target);
    b = target;
  }

  const std::int64_t columns = kernels.columns;
  const bool panels_first = plan.panels * kernels.panel_bytes(d.k) <= kResidentBytes;
  const std::int64_t chunks = (p.m + kRowChunk - 1) / kRowChunk;
  const std::int64_t task_work = std::max<std::int64_t>(1, std::min(p.m, kRowChunk) * columns * plan.depth);
  const std::int64_t grain = std::max<std::int64_t>(1, 100000 / task_work);
  parallel_for(product(p.batch) * plan.panels * chunks, grain, d.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t batch = task / chunks / plan.panels, part = task % (chunks * plan.panels);
      const std::int64_t chunk = panels_first ? part / plan.panels : part % chunks,
                         panel = panels_first ? part % plan.panels : part / chunks;
      // The batch's index in each operand, from the last axis on.
      std::int64_t index_a = 0, index_b = 0, size_a = 1, size_b = 1, rest = batch;
      for (std::size_t i = p.batch.size(); i-- > 0;) {
        const std::int64_t at = rest % p.batch[i];
        rest /= p.batch[i];
        if (p.batch_a[i] != 1) index_a += at * size_a, size_a *= p.batch_a[i];
        if (p.batch_b[i] != 1) index_b += at * size_b, size_b *= p.batch_b[i];
      }
      const std::int64_t row = chunk * kRowChunk, first = panel * columns;
      const std::int64_t row_a = index_a * p.m + row;
      kernels.product(
          std::min(kRowChunk, p.m - row), {a + row_a * plan.a_row * kernels.element(), plan.a_row, plan.depth},
          corrections ? corrections + row_a : nullptr, b + (index_b * plan.panels + panel) * kernels.panel_bytes(d.k),
          args.out + (batch * p.m + row) * d.n + first, d.n, static_cast<int>(std::min(columns, d.n - first)));
    }
  });
}

}  // namespace sardonyx::host
