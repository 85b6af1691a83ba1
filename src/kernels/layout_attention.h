// How attention kernels lay out shared memory: compiled by the kernels and by the library, which launches them.
// Freestanding: no includes, built-in types only. Offsets and sizes are in bytes where nothing else is said.
#pragma once

namespace sdx::layout {

/// Most thread blocks of a cluster of attention_step_mma, for few sequences.
inline constexpr int kStepCluster = 8;

/// Stride between rows of `chunks` vectors of 16 bytes, such that rows read together use different banks.
constexpr int row_pitch(int chunks) { return chunks % 8 == 0 ? chunks : chunks | 1; }

/// attention_step_mma: each of 8 warps has tiles of 16 keys and values; then queries, the new row, sums, statistics of
/// the cluster, maxima of the warps, a barrier.
struct StepMmaLayout {
  static constexpr int kTile = 16, kWarps = 8, kHeads = 8;  ///< heads: columns of an instruction
  int dim, group, cluster;
  bool appends;        ///< there is a new row
  bool paged = false;  ///< keys lie in pages

  constexpr int chunks() const { return dim / 8; }
  /// Tiles of a warp: two where memory bandwidth is the limit, so that one is fetched while one is used.
  constexpr int buffers() const { return cluster == kStepCluster || dim > 64 || (appends && !paged) ? 1 : 2; }
  constexpr int tile_vectors() const { return kTile * row_pitch(chunks()); }
  constexpr int warp_vectors() const { return buffers() * 2 * tile_vectors(); }
  /// Stride of queries, and of heads' sums, in elements: padded against bank conflicts.
  constexpr int padded_dim() const { return dim + 8; }
  constexpr int queries_at() const { return kWarps * warp_vectors() * 16; }
  constexpr int new_row_at() const { return queries_at() + kHeads * padded_dim() * 2; }
  constexpr int acc_at() const { return new_row_at() + 2 * dim * 2; }
  constexpr int statistics_at() const { return acc_at() + group * dim * 4; }
  constexpr int maxima_at() const { return statistics_at() + cluster * group * 2 * 4; }
  constexpr int barrier_at() const { return maxima_at() + kHeads * kWarps * 4; }
  constexpr int bytes() const { return barrier_at() + 16; }
};

/// attention_short_mma: how the four lanes that share a row of `dim` elements load it, of which `unit` can be loaded at
/// a time (0: one by one, in any order). Each lane has vectors of neighbouring elements.
struct ShortRow {
  int dim, unit;

  /// Elements of a vector. With 8, up to half of the elements of a nearly empty pair of steps of K would be multiplied
  /// for nothing.
  constexpr int vector() const {
    const int any = unit == 0 ? 8 : unit;
    const int fits = any == 8 && (dim % 8 != 0 || (dim % 32 > 0 && dim % 32 <= 16)) ? 4 : any;
    return fits == 4 && dim % 4 != 0 ? 2 : fits;
  }
  constexpr int words() const { return vector() < 2 ? 1 : vector() / 2; }           ///< pairs of elements of a vector
  constexpr int groups() const { return (dim + 8 * words() - 1) / (8 * words()); }  ///< vectors of a lane
  constexpr int steps() const { return (groups() * words() + 1) / 2; }              ///< of the product, K = 16
};

/// Elements of a head as the instructions multiply them: 64 or 128, the last ones zeros.
constexpr int padded_head(int dim) { return dim <= 64 ? 64 : 128; }

/// attention_wgmma: queries where registers do not hold them, two tiles of keys, three of values, and two of bias. In
/// vectors of 16 bytes.
/// `dim`: of a padded head.
struct WgmmaAttentionLayout {
  static constexpr int kKeyTiles = 2, kValueTiles = 3;
  int dim, keys, slices;
  bool column_bias, row_bias;

  constexpr int rows() const { return 128 / slices; }
  constexpr int tile() const { return keys * slices; }  ///< keys
  constexpr int row_chunks() const { return dim / 8; }
  constexpr bool queries_shared() const { return dim == 128 || row_bias; }
  constexpr int part() const { return tile() * row_chunks(); }
  constexpr int key_at() const { return queries_shared() ? rows() * row_chunks() : 0; }
  constexpr int value_at() const { return key_at() + kKeyTiles * part(); }
  constexpr int column_at() const { return value_at() + kValueTiles * part(); }
  constexpr int chunks() const { return column_at() + (column_bias ? 2 * tile() / 4 : 0); }
  constexpr int bytes() const { return 16 * chunks(); }
};

}  // namespace sdx::layout
