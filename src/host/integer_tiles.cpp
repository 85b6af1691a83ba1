// GEMMs of integer_tiles.h.
#include "host/integer_tiles.h"

#include <functional>
#include <numeric>
#include <utility>

#include "host/byte_gemm.h"
#include "host/gemm_problem.h"

namespace sardonyx::host {
namespace {

std::int64_t product(const std::vector<std::int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

class ByteGemm : public ByteGemmKernel {
 public:
  ByteGemm(const ByteGemmDesc& d, GemmProblem p)
      : ByteGemmKernel({product(p.batch), p.m, p.n, p.k, product(p.batch_b), product(p.batch_b) * p.k * p.n,
                        d.b_constant, d.threads}),
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

}  // namespace

std::shared_ptr<const TileKernel> make_byte_gemm(const ByteGemmDesc& desc) {
  GemmDesc shape;
  shape.batch_a = desc.batch_a, shape.batch_b = desc.batch_b;
  shape.m = desc.m, shape.n = desc.n, shape.k = desc.k;
  return std::make_shared<ByteGemm>(desc, simplify(shape));
}

}  // namespace sardonyx::host
