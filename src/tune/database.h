// A database of measured times: which candidate of a tile kernel is the fastest on which chip, for which problem. One
// SQLite file, which can be copied, merged and shipped.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "codegen/tile_choices.h"

struct sqlite3;

namespace sardonyx {

/// One measurement: a row of the database.
struct TuningRow {
  std::string arch;        ///< "gfx942", "sm_90a"
  std::int64_t units = 0;  ///< compute units of the card
  std::string problem;     ///< see codegen::TileChoices
  std::int64_t batches = 0, m = 0, n = 0, k = 0;
  std::string candidate;  ///< the kernel's name with its tiling
  double seconds = 0;     ///< of one launch
  auto key() const { return std::tie(arch, units, problem, batches, m, n, k, candidate); }
};

/// All members are safe from many threads; several processes may use one file. Errors: kIo for a file that can't be
/// opened, is damaged, or is not such a database; whatever a file holds, it is only data.
class TuningDatabase : public codegen::TileChoices {
 public:
  /// Opens a file; with `create` one that is not there is made when rows are first added. Without, a missing file is
  /// an error, and the database can't be added to.
  TuningDatabase(std::filesystem::path path, bool create);
  ~TuningDatabase() override;
  TuningDatabase(const TuningDatabase&) = delete;
  TuningDatabase& operator=(const TuningDatabase&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The candidates of each size, the fastest first. Where cards of different numbers of units were measured, the one
  /// of most units counts (the whole chip, not a part of it).
  std::vector<codegen::TunedSize> find(std::string_view arch, std::string_view problem) const override;
  /// Seconds by candidate, of this problem at these sizes, on a card of so many units.
  std::map<std::string, double> times(const TuningRow& like) const;
  /// Adds measurements; the ones with the same key are replaced.
  void add(const std::vector<TuningRow>& rows);
  /// Everything, in the order of keys.
  std::vector<TuningRow> rows() const;
  /// Adds what another database has; of equal keys the faster time stays. Returns how many rows were new or faster.
  std::size_t merge(const TuningDatabase& other);

 private:
  void load();
  void open(bool write);
  [[noreturn]] void damaged(const std::string& why) const;

  std::filesystem::path path_;
  bool create_;
  mutable std::mutex mutex_;
  sqlite3* db_ = nullptr;  ///< of a database that is added to
  using Key = std::tuple<std::string, std::int64_t, std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::string>;
  std::map<Key, double> times_;
};

}  // namespace sardonyx
