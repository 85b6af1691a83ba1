// See byte_gemm.h.
#include "host/byte_gemm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "host/parallel.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kGatheredBytes = 1 << 17;          // of a block's rows: a part of the L2 cache
constexpr std::int64_t kSumsBytes = 1 << 18;              // and of its sums
constexpr std::int64_t kLeastRows = 48, kMostRows = 192;  // of a block: each reads all panels again
constexpr std::int64_t kUnits = 8;                        // tasks per thread, at least, so that uneven ones balance
constexpr std::int64_t kLeastWork = 1 << 17;              // products of a thread: waking it takes microseconds
constexpr std::int64_t kColumns = 256;                    // of a unit, if threads divide a block's columns

std::size_t aligned(std::int64_t bytes) { return (static_cast<std::size_t>(bytes) + 63) / 64 * 64; }

/// memcpy of some tens of bytes, without a call. The last vector overlaps the one before it.
template <std::int64_t Width>
void copy_vectors(const std::uint8_t* from, std::int64_t count, std::byte* to) {
  std::int64_t i = 0;
  for (; i + Width <= count; i += Width) std::memcpy(to + i, from + i, Width);
  if (i < count) std::memcpy(to + count - Width, from + count - Width, Width);
}

void copy_bytes(const std::uint8_t* from, std::int64_t count, std::byte* to) {
  if (count >= 16) return copy_vectors<16>(from, count, to);
  if (count >= 4) return copy_vectors<4>(from, count, to);
  for (std::int64_t i = 0; i < count; ++i) to[i] = std::byte{from[i]};
}

}  // namespace

ByteGemmKernel::ByteGemmKernel(const ByteGemmShape& shape)
    : s_(shape),
      kernels_(integer_kernels()),
      depth_(kernels_.depth(shape.k)),
      panels_(quotient_up(shape.n, kernels_.columns)) {
  const std::int64_t row = std::max<std::int64_t>(1, depth_ * kernels_.element());
  std::int64_t fits = std::min(kGatheredBytes / row, kSumsBytes / std::max<std::int64_t>(1, 4 * s_.n));
  fits = std::clamp(fits, kLeastRows, kMostRows);
  chunks_ = std::max<std::int64_t>(1, quotient_up(s_.m, fits));
  chunk_ = quotient_up(s_.m, chunks_);
  // Rows that a kernel multiplies together fill its tile.
  chunk_ = std::min(s_.m, quotient_up(chunk_, 12) * 12);
  chunks_ = chunk_ == 0 ? 0 : quotient_up(s_.m, chunk_);
  pitch_ = depth_ + (kernels_.bytes && depth_ % kAliasedRows == 0 ? 64 : 0);
  rows_bytes_ = aligned(chunk_ * pitch_ * kernels_.element());
  sums_bytes_ = aligned(chunk_ * s_.n * 4);
  panel_bytes_ = kernels_.panel_bytes(s_.k);
  b_bytes_ = aligned(s_.matrices * panels_ * panel_bytes_);
}

std::size_t ByteGemmKernel::scratch_bytes() const {
  const std::size_t each = rows_bytes_ + sums_bytes_;
  return static_cast<std::size_t>(s_.threads) * each + (s_.weights_constant ? 0 : b_bytes_) + prepared_bytes();
}

std::string ByteGemmKernel::name() const { return std::string("8-bit panels:") + kernels_.name; }

std::shared_ptr<PackedWeights> ByteGemmKernel::pack(const void* weights) const {
  auto packed = PackedWeights::empty();
  in_panels(*packed, weights);
  return packed;
}

void ByteGemmKernel::run(const TileArgs& args) const {
  auto* scratch = static_cast<std::byte*>(args.scratch);
  std::byte* rest = scratch + static_cast<std::size_t>(s_.threads) * (rows_bytes_ + sums_bytes_);
  const std::byte* b = nullptr;
  std::shared_ptr<const Buffer> packed;
  if (s_.weights_constant) {
    check(args.packed != nullptr, "constant weights must come packed");
    packed = in_panels(*args.packed, args.weights);
    b = static_cast<const std::byte*>(packed->data());
  } else {
    pack_all(args.weights, rest);
    b = std::exchange(rest, rest + b_bytes_);
  }
  Job job{args, prepared(args.src, rest), b, args.accumulators.call ? args.accumulators.block : kColumns, 1};
  const std::int64_t blocks = s_.batches * chunks_;
  if (blocks < kUnits * s_.threads && s_.threads > 1) job.parts = quotient_up(s_.n, job.columns);
  const std::int64_t units = blocks * job.parts;
  const std::int64_t busy = 1 + s_.batches * s_.m * std::max<std::int64_t>(1, s_.n * depth_ / kLeastWork);
  const auto used = static_cast<int>(std::min({std::int64_t{s_.threads}, units, busy}));
  Shares shares(units, std::max(1, used));
  parallel_for(used, 1, used, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t thread = begin; thread < end; ++thread) {
      Block block;
      block.gathered = scratch + static_cast<std::size_t>(thread) * (rows_bytes_ + sums_bytes_);
      block.sums = reinterpret_cast<std::int32_t*>(block.gathered + rows_bytes_);
      for (std::int64_t unit; shares.take(static_cast<int>(thread), unit);)
        compute(job, unit / job.parts, unit % job.parts, block);
    }
  });
}

void ByteGemmKernel::store_sums(std::int64_t first, std::int64_t count, const std::int32_t* sums,
                                std::int32_t* out) const {
  std::memcpy(out + first * s_.n, sums, static_cast<std::size_t>(count * s_.n) * sizeof(std::int32_t));
}

void ByteGemmKernel::store_row(std::int64_t row, std::int64_t begin, std::int64_t end, const std::int32_t* sums,
                               std::int32_t* out) const {
  std::copy(sums + begin, sums + end, out + row * s_.n + begin);
}

void ByteGemmKernel::copy(const std::uint8_t* from, std::int64_t count, std::byte* to) const {
  if (kernels_.bytes)
    copy_bytes(from, count, to);
  else
    kernels_.pack_row(from, false, count, 0, to, count);
}

void ByteGemmKernel::fill(int value, std::int64_t count, std::byte* to) const {
  if (kernels_.bytes)
    std::memset(to, value, static_cast<std::size_t>(count));
  else
    std::fill_n(reinterpret_cast<std::int16_t*>(to), count, static_cast<std::int16_t>(value));
}

void ByteGemmKernel::compute(const Job& job, std::int64_t chunk, std::int64_t part, Block& block) const {
  const std::int64_t batch = chunk / chunks_, first = chunk % chunks_ * chunk_, count = std::min(chunk_, s_.m - first);
  if (block.chunk != chunk) {
    block.chunk = chunk;
    block.pieces.clear();
    if (!pieces(job.a, first, count, block.pieces)) {
      if (!in_place_) gather(job.a, batch, first, count, block.gathered, pitch_);
      const std::byte* rows = in_place_ ? row(job.a, batch, first) : block.gathered;
      block.pieces.push_back({{rows, in_place_ ? in_place_ : pitch_, depth_}, count});
    }
  }
  const std::int64_t begin = job.parts == 1 ? 0 : part * job.columns,
                     end = job.parts == 1 ? s_.n : std::min(s_.n, begin + job.columns);
  static constexpr IntegerRow kNoCorrections[kMostRows + 12] = {};
  const std::byte* panels = job.b + matrix_of(batch) * panels_ * panel_bytes_;
  for (std::int64_t column = begin; column < end; column += kernels_.columns) {
    std::int32_t* sums = block.sums + column;
    for (const Piece& p : block.pieces) {
      kernels_.product(p.count, p.rows, kNoCorrections, panels + column / kernels_.columns * panel_bytes_, sums, s_.n,
                       static_cast<int>(std::min<std::int64_t>(kernels_.columns, s_.n - column)));
      sums += p.count * s_.n;
    }
  }
  hand_on(job, batch * s_.m + first, count, begin, end, part, block.sums);
}

void ByteGemmKernel::hand_on(const Job& job, std::int64_t first, std::int64_t count, std::int64_t begin,
                             std::int64_t end, std::int64_t part, const std::int32_t* sums) const {
  const AccumulatorFunction& f = job.args.accumulators;
  if (f.call) {
    const std::int64_t blocks = quotient_up(s_.n, f.block);
    const auto* origin = reinterpret_cast<const std::int32_t*>(reinterpret_cast<std::uintptr_t>(sums) -
                                                               static_cast<std::uintptr_t>(first * s_.n) * 4);
    if (job.parts == 1) return f.call(f.context, origin, first * blocks, (first + count) * blocks);
    for (std::int64_t i = first; i < first + count; ++i)
      f.call(f.context, origin, i * blocks + part, i * blocks + part + 1);
    return;
  }
  auto* out = static_cast<std::int32_t*>(job.args.out);
  if (job.parts == 1) return store_sums(first, count, sums, out);
  for (std::int64_t i = 0; i < count; ++i) store_row(first + i, begin, end, sums + i * s_.n, out);
}

void ByteGemmKernel::pack_all(const void* b, std::byte* to) const {
  const std::int64_t grain = std::max<std::int64_t>(1, kLeastWork / std::max<std::int64_t>(1, panel_bytes_));
  parallel_for(s_.matrices * panels_, grain, s_.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t first = p % panels_ * kernels_.columns;
      pack_panel(b, p / panels_, first, static_cast<int>(std::min<std::int64_t>(kernels_.columns, s_.n - first)),
                 to + p * panel_bytes_);
    }
  });
}

std::shared_ptr<const Buffer> ByteGemmKernel::in_panels(PackedWeights& packed, const void* original) const {
  return packed.form(fmt::format("{} {} {} {}", form(), kernels_.name, s_.n, s_.k), b_bytes_, original,
                     static_cast<std::size_t>(s_.weight_bytes),
                     [&](const void* plain, void* target) { pack_all(plain, static_cast<std::byte*>(target)); });
}

}  // namespace sardonyx::host
