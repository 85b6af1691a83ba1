// See integer_tiles.h. A block of rows is gathered as the kernels read it (or read in place), multiplied with every
// panel of columns, and its sums are handed on.
#include "host/integer_tiles.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "host/gemm_problem.h"
#include "host/integer_kernels.h"
#include "host/parallel.h"
#include "host/transpose_tile.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

constexpr std::int64_t kGatheredBytes = 1 << 17;          // of a block's rows: a part of the L2 cache
constexpr std::int64_t kSumsBytes = 1 << 18;              // and of its sums
constexpr std::int64_t kLeastRows = 48, kMostRows = 192;  // of a block: each reads all panels again
constexpr std::int64_t kUnits = 8;                        // tasks per thread, at least, so that uneven ones balance
constexpr std::int64_t kLeastWork = 1 << 17;              // products of a thread: waking it takes microseconds
constexpr std::int64_t kColumns = 256;                    // of a unit, if threads divide a block's columns
constexpr std::int64_t kAliased = 512;  // rows at multiples of this distance compete for the same sets of the L1 cache

std::int64_t product(const std::vector<std::int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t quotient_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to; }
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

/// `batches` products of `m` rows, with the same n and k.
struct Shape {
  std::int64_t batches = 1, m = 0, n = 0, k = 0;
  std::int64_t matrices = 1;      ///< right operands
  bool weights_constant = false;  ///< the only right operand is packed once
  int threads = 1;
};

class ByteProduct : public TileKernel {
 public:
  explicit ByteProduct(const Shape& shape)
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
    pitch_ = depth_ + (kernels_.bytes && depth_ % kAliased == 0 ? 64 : 0);
    rows_bytes_ = aligned(chunk_ * pitch_ * kernels_.element());
    sums_bytes_ = aligned(chunk_ * s_.n * 4);
    panel_bytes_ = kernels_.panel_bytes(s_.k);
    b_bytes_ = aligned(s_.matrices * panels_ * panel_bytes_);
  }

  std::size_t scratch_bytes() const override {
    const std::size_t each = rows_bytes_ + sums_bytes_;
    return static_cast<std::size_t>(s_.threads) * each + (s_.weights_constant ? 0 : b_bytes_);
  }
  std::string name() const override { return std::string("8-bit panels:") + kernels_.name; }

  std::shared_ptr<PackedWeights> pack(const void* weights) const override {
    auto packed = PackedWeights::empty();
    in_panels(*packed, weights);
    return packed;
  }

  void run(const TileArgs& args) const override {
    auto* scratch = static_cast<std::byte*>(args.scratch);
    const std::byte* b = nullptr;
    std::shared_ptr<const Buffer> packed;
    if (s_.weights_constant) {
      check(args.packed != nullptr, "constant weights must come packed");
      packed = in_panels(*args.packed, args.weights);
      b = static_cast<const std::byte*>(packed->data());
    } else {
      std::byte* target = scratch + static_cast<std::size_t>(s_.threads) * (rows_bytes_ + sums_bytes_);
      pack_all(args.weights, target);
      b = target;
    }
    Job job{args, b, args.sums.call ? args.sums.block : kColumns, 1};
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

 protected:
  /// Packs `count` rows of a batch from `first` on, each depth_ elements, at a distance of `pitch` elements.
  virtual void gather(const void* a, std::int64_t batch, std::int64_t first, std::int64_t count, std::byte* to,
                      std::int64_t pitch) const = 0;
  /// Where these rows lie in memory as the kernels read them, `in_place_` elements apart.
  virtual const std::byte* row(const void* a, std::int64_t batch, std::int64_t first) const = 0;
  /// Which right operand a batch is multiplied with.
  virtual std::int64_t matrix_of(std::int64_t) const { return 0; }
  /// Packs the columns [first, first + count) of a right operand.
  virtual void pack_panel(const void* b, std::int64_t matrix, std::int64_t first, int count, std::byte* to) const = 0;
  /// Names the layout of packed weights.
  virtual std::string form() const = 0;
  virtual void store_sums(const Shape& s, std::int64_t first, std::int64_t count, const std::int32_t* sums,
                          std::int32_t* out) const {
    std::memcpy(out + first * s.n, sums, static_cast<std::size_t>(count * s.n) * sizeof(std::int32_t));
  }

  /// Rows that are `pitch` elements apart need not be gathered.
  void read_in_place(std::int64_t pitch) {
    if (kernels_.bytes && s_.k == depth_ && pitch % kAliased != 0) in_place_ = pitch;
  }

  /// `count` elements of the left operand as the kernels read them.
  void copy(const std::uint8_t* from, std::int64_t count, std::byte* to) const {
    if (kernels_.bytes)
      copy_bytes(from, count, to);
    else
      kernels_.pack_row(from, false, count, 0, to, count);
  }
  void fill(int value, std::int64_t count, std::byte* to) const {
    if (kernels_.bytes)
      std::memset(to, value, static_cast<std::size_t>(count));
    else
      std::fill_n(reinterpret_cast<std::int16_t*>(to), count, static_cast<std::int16_t>(value));
  }

  const Shape s_;
  const IntegerKernels& kernels_;
  const std::int64_t depth_, panels_;

 private:
  struct Job {
    const TileArgs& args;
    const std::byte* b;
    std::int64_t columns;  ///< of a block that the function of sums takes
    std::int64_t parts;    ///< into which the columns of a chunk of rows are divided
  };
  /// A thread's memory.
  struct Block {
    std::byte* gathered = nullptr;
    std::int32_t* sums = nullptr;
    std::int64_t chunk = -1;  ///< whose rows are gathered
  };

  void compute(const Job& job, std::int64_t chunk, std::int64_t part, Block& block) const {
    const std::int64_t batch = chunk / chunks_, first = chunk % chunks_ * chunk_,
                       count = std::min(chunk_, s_.m - first);
    const std::byte* rows = block.gathered;
    if (in_place_) {
      rows = row(job.args.src, batch, first);
    } else if (block.chunk != chunk) {
      gather(job.args.src, batch, first, count, block.gathered, pitch_);
      block.chunk = chunk;
    }
    const std::int64_t begin = job.parts == 1 ? 0 : part * job.columns,
                       end = job.parts == 1 ? s_.n : std::min(s_.n, begin + job.columns);
    static constexpr IntegerRow kNoCorrections[kMostRows + 12] = {};
    const std::byte* panels = job.b + matrix_of(batch) * panels_ * panel_bytes_;
    for (std::int64_t column = begin; column < end; column += kernels_.columns)
      kernels_.product(count, depth_, rows, in_place_ ? in_place_ : pitch_, kNoCorrections,
                       panels + column / kernels_.columns * panel_bytes_, block.sums + column, s_.n,
                       static_cast<int>(std::min<std::int64_t>(kernels_.columns, s_.n - column)));
    hand_on(job, batch * s_.m + first, count, begin, end, part, block.sums);
  }

  /// Rows are numbered through all batches.
  void hand_on(const Job& job, std::int64_t first, std::int64_t count, std::int64_t begin, std::int64_t end,
               std::int64_t part, const std::int32_t* sums) const {
    const SumsFunction& f = job.args.sums;
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
    if (job.parts == 1) return store_sums(s_, first, count, sums, out);
    for (std::int64_t i = 0; i < count; ++i) store_row(first + i, begin, end, sums + i * s_.n, out);
  }

 protected:
  virtual void store_row(std::int64_t row, std::int64_t begin, std::int64_t end, const std::int32_t* sums,
                         std::int32_t* out) const {
    std::copy(sums + begin, sums + end, out + row * s_.n + begin);
  }

 private:
  void pack_all(const void* b, std::byte* to) const {
    const std::int64_t grain = std::max<std::int64_t>(1, kLeastWork / std::max<std::int64_t>(1, panel_bytes_));
    parallel_for(s_.matrices * panels_, grain, s_.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p) {
        const std::int64_t first = p % panels_ * kernels_.columns;
        pack_panel(b, p / panels_, first, static_cast<int>(std::min<std::int64_t>(kernels_.columns, s_.n - first)),
                   to + p * panel_bytes_);
      }
    });
  }

  std::shared_ptr<const Buffer> in_panels(PackedWeights& packed, const void* original) const {
    return packed.form(fmt::format("{} {} {} {}", form(), kernels_.name, s_.n, s_.k), b_bytes_, original,
                       static_cast<std::size_t>(s_.matrices * s_.n * s_.k),
                       [&](const void* plain, void* target) { pack_all(plain, static_cast<std::byte*>(target)); });
  }

  std::int64_t chunk_ = 0, chunks_ = 0;  ///< rows of a block, and blocks of a batch
  std::int64_t pitch_ = 0;               ///< elements from one gathered row to the next
  std::int64_t in_place_ = 0;            ///< the same for rows that are read in place; 0: they are gathered
  std::int64_t panel_bytes_ = 0;
  std::size_t rows_bytes_ = 0, sums_bytes_ = 0;  ///< of a thread
  std::size_t b_bytes_ = 0;                      ///< all right operands, packed
};

class ByteGemm : public ByteProduct {
 public:
  ByteGemm(const ByteGemmDesc& d, GemmProblem p)
      : ByteProduct({product(p.batch), p.m, p.n, p.k, product(p.batch_b), d.b_constant, d.threads}),
        p_(std::move(p)),
        trans_b_(d.trans_b) {
    read_in_place(p_.k);
  }

 private:
  /// A batch's index in an operand with these extents.
  std::int64_t index_in(const std::vector<std::int64_t>& extents, std::int64_t batch) const {
    std::int64_t index = 0, size = 1;
    for (std::size_t i = p_.batch.size(); i-- > 0;) {
      const std::int64_t at = batch % p_.batch[i];
      batch /= p_.batch[i];
      if (extents[i] != 1) index += at * size, size *= extents[i];
    }
    return index;
  }
  std::int64_t matrix_of(std::int64_t batch) const override { return index_in(p_.batch_b, batch); }

  const std::byte* row(const void* a, std::int64_t batch, std::int64_t first) const override {
    return static_cast<const std::byte*>(a) + (index_in(p_.batch_a, batch) * p_.m + first) * p_.k;
  }
  void gather(const void* a, std::int64_t batch, std::int64_t first, std::int64_t count, std::byte* to,
              std::int64_t pitch) const override {
    const std::byte* from = row(a, batch, first);
    for (std::int64_t i = 0; i < count; ++i)
      kernels_.pack_row(from + i * p_.k, false, p_.k, 0, to + i * pitch * kernels_.element(), depth_);
  }
  void pack_panel(const void* b, std::int64_t matrix, std::int64_t first, int count, std::byte* to) const override {
    const std::vector<int> zeros(static_cast<std::size_t>(kernels_.columns));
    const auto* from = static_cast<const std::byte*>(b) + matrix * p_.k * p_.n + first * (trans_b_ ? p_.k : 1);
    kernels_.pack_columns(from, true, trans_b_ ? 1 : p_.n, trans_b_ ? p_.k : 1, p_.k, depth_, count, zeros.data(), to);
  }
  std::string form() const override { return trans_b_ ? "8-bit rows" : "8-bit columns"; }

  const GemmProblem p_;
  const bool trans_b_;
};

class ByteConvolution : public ByteProduct {
 public:
  explicit ByteConvolution(const ByteConvDesc& d) : ByteProduct(shape_of(d)), d_(d) {
    bool plain = true;
    for (std::size_t i = 0; i < 2; ++i)
      plain = plain && d.kernel[i] == 1 && d.stride[i] == 1 && d.pad_begin[i] == 0 && d.in[i] == d.out[i];
    if (plain) read_in_place(d.channels);
  }

 private:
  static Shape shape_of(const ByteConvDesc& d) {
    return {1,          d.batch * d.out[0] * d.out[1],
            d.features, d.kernel[0] * d.kernel[1] * d.channels,
            1,          d.weights_constant,
            d.threads};
  }

  const std::byte* row(const void* x, std::int64_t, std::int64_t first) const override {
    return static_cast<const std::byte*>(x) + first * d_.channels;
  }

  void gather(const void* x, std::int64_t, std::int64_t first, std::int64_t count, std::byte* to,
              std::int64_t pitch) const override {
    const auto* images = static_cast<const std::uint8_t*>(x);
    std::int64_t column = first % d_.out[1], line = first / d_.out[1] % d_.out[0], n = first / (d_.out[0] * d_.out[1]);
    for (std::int64_t i = 0; i < count; ++i) {
      std::byte* end = window(images + n * d_.in[0] * d_.in[1] * d_.channels, line, column, to);
      to += pitch * kernels_.element();
      if (depth_ > s_.k) fill(0, depth_ - s_.k, end);
      if (++column < d_.out[1]) continue;
      column = 0;
      if (++line < d_.out[0]) continue;
      line = 0;
      ++n;
    }
  }

  /// Copies the window of an output position; returns its end.
  std::byte* window(const std::uint8_t* image, std::int64_t line, std::int64_t column, std::byte* to) const {
    const std::int64_t channels = d_.channels, run = d_.kernel[1] * channels;
    const std::int64_t top = line * d_.stride[0] - d_.pad_begin[0], left = column * d_.stride[1] - d_.pad_begin[1];
    // Taps [begin, end) of a filter's row are inside of the image.
    std::int64_t begin = 0, end = d_.kernel[1];
    if (left < 0) begin = std::min(end, quotient_up(-left, d_.dilation[1]));
    if (left >= d_.in[1])
      end = 0;
    else
      end = std::min(end, (d_.in[1] - 1 - left) / d_.dilation[1] + 1);
    end = std::max(begin, end);
    const std::int64_t element = kernels_.element();
    for (std::int64_t ky = 0; ky < d_.kernel[0]; ++ky, to += run * element) {
      const std::int64_t y = top + ky * d_.dilation[0];
      if (y < 0 || y >= d_.in[0]) {
        fill(d_.padding, run, to);
        continue;
      }
      const std::uint8_t* from = image + y * d_.in[1] * channels;
      if (begin > 0) fill(d_.padding, begin * channels, to);
      if (d_.dilation[1] == 1) {
        copy(from + (left + begin) * channels, (end - begin) * channels, to + begin * channels * element);
      } else {
        for (std::int64_t kx = begin; kx < end; ++kx)
          copy(from + (left + kx * d_.dilation[1]) * channels, channels, to + kx * channels * element);
      }
      if (end < d_.kernel[1]) fill(d_.padding, (d_.kernel[1] - end) * channels, to + end * channels * element);
    }
    return to;
  }

  void pack_panel(const void* w, std::int64_t, std::int64_t first, int count, std::byte* to) const override {
    // A window's elements have their channels last.
    const std::int64_t taps = d_.kernel[0] * d_.kernel[1], channels = d_.channels;
    const auto* from = static_cast<const std::int8_t*>(w) + first * s_.k;
    std::vector<std::int8_t> turned(static_cast<std::size_t>(count * s_.k));
    for (std::int64_t j = 0; j < count; ++j)
      for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t t = 0; t < taps; ++t)
          turned[static_cast<std::size_t>(j * s_.k + t * channels + c)] = from[j * s_.k + c * taps + t];
    const std::vector<int> zeros(static_cast<std::size_t>(kernels_.columns));
    kernels_.pack_columns(turned.data(), true, 1, s_.k, s_.k, depth_, count, zeros.data(), to);
  }
  std::string form() const override { return fmt::format("8-bit windows of {}", d_.channels); }

  void store_sums(const Shape& s, std::int64_t first, std::int64_t count, const std::int32_t* sums,
                  std::int32_t* out) const override {
    if (!d_.features_first) return ByteProduct::store_sums(s, first, count, sums, out);
    const std::int64_t positions = d_.out[0] * d_.out[1];
    while (count > 0) {
      const std::int64_t n = first / positions, at = first % positions, here = std::min(count, positions - at);
      store_transposed(sums, here, s.n, positions, out + n * s.n * positions + at);
      sums += here * s.n;
      first += here;
      count -= here;
    }
  }
  void store_row(std::int64_t row, std::int64_t begin, std::int64_t end, const std::int32_t* sums,
                 std::int32_t* out) const override {
    if (!d_.features_first) return ByteProduct::store_row(row, begin, end, sums, out);
    const std::int64_t positions = d_.out[0] * d_.out[1], n = row / positions;
    for (std::int64_t m = begin; m < end; ++m) out[(n * s_.n + m) * positions + row % positions] = sums[m];
  }

  const ByteConvDesc d_;
};

}  // namespace

std::shared_ptr<const TileKernel> make_byte_gemm(const ByteGemmDesc& desc) {
  GemmDesc shape;
  shape.batch_a = desc.batch_a, shape.batch_b = desc.batch_b;
  shape.m = desc.m, shape.n = desc.n, shape.k = desc.k;
  return std::make_shared<ByteGemm>(desc, simplify(shape));
}

std::shared_ptr<const TileKernel> make_byte_convolution(const ByteConvDesc& d) {
  for (std::size_t i = 0; i < 2; ++i)
    check(d.in[i] > 0 && d.kernel[i] > 0 && d.stride[i] > 0 && d.dilation[i] > 0, "convolution of nothing");
  return std::make_shared<ByteConvolution>(d);
}

}  // namespace sardonyx::host
