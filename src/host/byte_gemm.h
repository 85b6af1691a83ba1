// What GEMMs and convolutions of uint8 times int8 have in common (integer_tiles.h). A block of rows is gathered as the
// kernels read it, or read in place, multiplied with every panel of columns, and its sums are handed on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "host/integer_kernels.h"
#include "host/tile_kernel.h"

namespace sardonyx::host {

/// Rows at multiples of this distance compete for the same sets of the L1 cache.
constexpr std::int64_t kAliasedRows = 512;

inline std::int64_t quotient_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to; }

/// `batches` products of `m` rows, with the same n and k (which may be padded with zeros).
struct ByteGemmShape {
  std::int64_t batches = 1, m = 0, n = 0, k = 0;
  std::int64_t matrices = 1;      ///< right operands
  std::int64_t weight_bytes = 0;  ///< of all right operands in the model
  bool weights_constant = false;  ///< the only right operand is packed once
  int threads = 1;
};

class ByteGemmKernel : public TileKernel {
 public:
  explicit ByteGemmKernel(const ByteGemmShape& shape);

  std::size_t scratch_bytes() const override;
  std::string name() const override;

  std::shared_ptr<PackedWeights> pack(const void* weights) const override;

  void run(const TileArgs& args) const override;

 protected:
  /// Rows that are multiplied at once.
  struct Piece {
    IntegerRows rows;
    std::int64_t count;
  };
  /// The left operand as pieces() reads it, made once per run in `prepared_bytes()` of memory.
  virtual std::size_t prepared_bytes() const { return 0; }
  virtual const void* prepared(const void* a, std::byte*) const { return a; }
  /// Appends where `count` rows of a batch from `first` on lie. False: they are to be gathered, or read in place.
  virtual bool pieces(const void*, std::int64_t, std::int64_t, std::vector<Piece>&) const { return false; }
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
  /// Without a function for sums: stores rows, or columns of one.
  virtual void store_sums(std::int64_t first, std::int64_t count, const std::int32_t* sums, std::int32_t* out) const;
  virtual void store_row(std::int64_t row, std::int64_t begin, std::int64_t end, const std::int32_t* sums,
                         std::int32_t* out) const;

  /// Rows that are `pitch` elements apart need not be gathered.
  void read_in_place(std::int64_t pitch) {
    if (kernels_.bytes && s_.k == depth_ && pitch % kAliasedRows != 0) in_place_ = pitch;
  }

  /// `count` elements of the left operand as the kernels read them.
  void copy(const std::uint8_t* from, std::int64_t count, std::byte* to) const;
  void fill(int value, std::int64_t count, std::byte* to) const;

  const ByteGemmShape s_;
  const IntegerKernels& kernels_;
  const std::int64_t depth_, panels_;

 private:
  struct Job {
    const TileArgs& args;
    const void* a;
    const std::byte* b;
    std::int64_t columns;  ///< of a block that the function of sums takes
    std::int64_t parts;    ///< into which the columns of a chunk of rows are divided
  };
  /// A thread's memory.
  struct Block {
    std::byte* gathered = nullptr;
    std::int32_t* sums = nullptr;
    std::int64_t chunk = -1;  ///< whose rows are gathered, or described by
    std::vector<Piece> pieces;
  };

  void compute(const Job& job, std::int64_t chunk, std::int64_t part, Block& block) const;

  /// Rows are numbered through all batches.
  void hand_on(const Job& job, std::int64_t first, std::int64_t count, std::int64_t begin, std::int64_t end,
               std::int64_t part, const std::int32_t* sums) const;

  void pack_all(const void* b, std::byte* to) const;

  std::shared_ptr<const Buffer> in_panels(PackedWeights& packed, const void* original) const;

  std::int64_t chunk_ = 0, chunks_ = 0;  ///< rows of a block, and blocks of a batch
  std::int64_t pitch_ = 0;               ///< elements from one gathered row to the next
  std::int64_t in_place_ = 0;            ///< the same for rows that are read in place; 0: they are gathered
  std::int64_t panel_bytes_ = 0;
  std::size_t rows_bytes_ = 0, sums_bytes_ = 0;  ///< of a thread
  std::size_t b_bytes_ = 0;                      ///< all right operands, packed
};

}  // namespace sardonyx::host
