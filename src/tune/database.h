// The tuning database: measured times of kernel candidates (tilings of GEMM and convolution, forms of attention,
// library calls), by chip, problem and size. One SQLite file, which can be copied, merged and shipped.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "codegen/tile_choices.h"

struct sqlite3;

namespace sardonyx {

/// The database in a cache directory. Its name has the number of the format, so that an older one is left alone.
inline constexpr const char* kCachedTimes = "tuning-2.sqlite";

/// One measurement: a row of the database.
struct TuningRow {
  std::string arch;        ///< "gfx942", "sm_90a"
  std::int64_t units = 0;  ///< compute units, as the driver counts them
  std::string problem;     ///< see codegen::TileChoices
  std::int64_t batches = 0, m = 0, n = 0, k = 0;
  std::string candidate;                                  ///< the kernel with its tiling: "gemm_wgmma<128, 6, 1>"
  double seconds = 0;                                     ///< of one launch
  std::optional<LibraryEpilogue> library = std::nullopt;  ///< set: a call of a vendor's library, else our own kernel
  auto key() const { return std::tie(arch, units, problem, batches, m, n, k, candidate); }
};

/// Thread-safe; several processes may use one file. Throws Error(kIo) for a file that cannot be opened, is damaged or
/// is not a tuning database. Nothing in a file is executed: triggers, views and foreign schemas are refused.
class TuningDatabase : public codegen::TileChoices {
 public:
  /// Opens a file for reading. With `create` it may be missing and is created when rows are first added; without, a
  /// missing file is an error and add() is refused.
  TuningDatabase(std::filesystem::path path, bool create);
  ~TuningDatabase() override;
  TuningDatabase(const TuningDatabase&) = delete;
  TuningDatabase& operator=(const TuningDatabase&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The candidates of each size, fastest first. If GPUs with different numbers of units were measured, the one with
  /// the most units counts: the whole chip rather than a partition of it.
  std::vector<TunedSize> find(std::string_view arch, std::string_view problem) const override;
  /// Seconds by candidate for the chip, units, problem and sizes of `like`.
  std::map<std::string, double> times(const TuningRow& like) const;
  /// Adds measurements. A row with an existing key replaces it. Throws Error(kInvalidArgument) if opened for reading.
  void add(const std::vector<TuningRow>& rows);
  /// All rows, in the order of their keys.
  std::vector<TuningRow> rows() const;
  /// Adds the rows of another database; of equal keys the faster time stays. Returns how many rows were new or faster.
  std::size_t merge(const TuningDatabase& other);

 private:
  void load();
  void open(bool write);
  [[noreturn]] void damaged(const std::string& why) const;

  std::filesystem::path path_;
  bool create_;
  mutable std::mutex mutex_;
  sqlite3* db_ = nullptr;  ///< open for writing; null until rows are first added
  using Key = std::tuple<std::string, std::int64_t, std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::string>;
  struct Measured {
    double seconds = 0;
    std::optional<LibraryEpilogue> library;
  };
  std::map<Key, Measured> times_;
};

}  // namespace sardonyx
