#include "tune/database.h"

#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "support/error.h"

namespace sardonyx {
namespace {

constexpr int kApplication = 0x53445854;  // "SDXT", in the file's header
constexpr int kFormat = 2;                // the header's user_version
// Files may come from elsewhere. A model has some hundred problems with some tens of candidates each: the limits are
// far above that, and keep the memory of a hostile file bounded.
constexpr std::size_t kMaxRows = 1 << 20, kMaxText = 500;
constexpr int kMaxBytes = 1 << 16;            // of one value or statement
constexpr std::int64_t kMaxSize = INT32_MAX;  // of one dim of a problem
constexpr int kBusyMilliseconds = 10000;      // how long to wait for another process that writes: it takes milliseconds

constexpr const char* kSchema =
    "CREATE TABLE times (arch TEXT NOT NULL, units INTEGER NOT NULL, problem TEXT NOT NULL, batches INTEGER NOT NULL, "
    "m INTEGER NOT NULL, n INTEGER NOT NULL, k INTEGER NOT NULL, candidate TEXT NOT NULL, seconds REAL NOT NULL, "
    "epilogue INTEGER, PRIMARY KEY (arch, units, problem, batches, m, n, k, candidate)) WITHOUT ROWID";

// The column `epilogue`: that of a call of a vendor's library, NULL for kernels of our own.
constexpr int kActivations = static_cast<int>(GemmActivation::kGeluTanh) + 1, kEpilogues = 4 * kActivations;

int code_of(const LibraryEpilogue& e) {
  return (e.bias ? 1 : 0) + (e.residual ? 2 : 0) + 4 * static_cast<int>(e.activation);
}

LibraryEpilogue epilogue_of(std::int64_t code) {
  return {(code & 1) != 0, (code & 2) != 0, static_cast<GemmActivation>(code / 4)};
}

/// A prepared statement, finalised by the destructor.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) : db_(db) {
    if (sqlite3_prepare_v2(db, sql, -1, &s_, nullptr) != SQLITE_OK) throw std::runtime_error(sqlite3_errmsg(db));
  }
  ~Statement() { sqlite3_finalize(s_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void bind(int at, const std::string& text) { sqlite3_bind_text(s_, at, text.c_str(), -1, SQLITE_TRANSIENT); }
  void bind(int at, std::int64_t n) { sqlite3_bind_int64(s_, at, n); }
  void bind(int at, double x) { sqlite3_bind_double(s_, at, x); }
  void bind_null(int at) { sqlite3_bind_null(s_, at); }
  /// Advances to the next row; false if there is none.
  bool step() {
    const int code = sqlite3_step(s_);
    if (code == SQLITE_ROW) return true;
    if (code == SQLITE_DONE) return false;
    throw std::runtime_error(sqlite3_errmsg(db_));
  }
  void again() { sqlite3_reset(s_); }
  bool is(int column, int type) const { return sqlite3_column_type(s_, column) == type; }
  std::int64_t number(int column) const { return sqlite3_column_int64(s_, column); }
  double real(int column) const { return sqlite3_column_double(s_, column); }
  std::string text(int column) const {
    const auto* p = reinterpret_cast<const char*>(sqlite3_column_text(s_, column));
    return p ? std::string(p, static_cast<std::size_t>(sqlite3_column_bytes(s_, column))) : std::string();
  }

 private:
  sqlite3* db_;
  sqlite3_stmt* s_ = nullptr;
};

void run(sqlite3* db, const char* sql) {
  if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) != SQLITE_OK) throw std::runtime_error(sqlite3_errmsg(db));
}

std::int64_t pragma(sqlite3* db, const char* name) {
  Statement s(db, (std::string("PRAGMA ") + name).c_str());
  return s.step() ? s.number(0) : -1;
}

// Whether text is printable ASCII of a sane length, as all names of chips, problems and kernels are.
bool plain(const std::string& text) {
  return !text.empty() && text.size() <= kMaxText &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

TuningDatabase::TuningDatabase(std::filesystem::path path, bool create) : path_(std::move(path)), create_(create) {
  std::error_code ignored;
  if (std::filesystem::exists(path_, ignored))
    load();
  else if (!create)
    fail(ErrorKind::kIo, "{}: no such file; `sardonyx tune` creates a database", path_.string());
}

TuningDatabase::~TuningDatabase() { sqlite3_close(db_); }

void TuningDatabase::damaged(const std::string& why) const {
  fail(ErrorKind::kIo, "{}: not a tuning database of Sardonyx, or damaged: {}", path_.string(), why);
}

void TuningDatabase::open(bool write) {
  const int flags = (write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY) | SQLITE_OPEN_NOFOLLOW;
  std::error_code ignored;
  const std::filesystem::path real = std::filesystem::weakly_canonical(path_, ignored);
  if (sqlite3_open_v2((real.empty() ? path_ : real).c_str(), &db_, flags, nullptr) != SQLITE_OK) {
    const std::string why = db_ ? sqlite3_errmsg(db_) : "out of memory";
    sqlite3_close(std::exchange(db_, nullptr));
    fail(ErrorKind::kIo, "{} can't be opened: {}", path_.string(), why);
  }
  // A file from elsewhere is data: nothing in it is executed.
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_limit(db_, SQLITE_LIMIT_LENGTH, kMaxBytes);
  sqlite3_busy_timeout(db_, kBusyMilliseconds);
}

void TuningDatabase::load() {
  open(false);
  std::string problem;
  try {
    run(db_, "PRAGMA cell_size_check = ON");
    if (pragma(db_, "application_id") != kApplication)
      problem = "it was made by another program";
    else if (const std::int64_t format = pragma(db_, "user_version"); format != kFormat)
      problem = fmt::format("its format is {}, and this version reads {}; delete it, and tune again", format, kFormat);
    if (problem.empty()) {
      Statement schema(db_, "SELECT count(*), max(sql) FROM sqlite_schema");
      if (!schema.step() || schema.number(0) != 1 || schema.text(1) != kSchema) problem = "it has other tables";
    }
    if (problem.empty()) {
      Statement s(db_, "SELECT arch, units, problem, batches, m, n, k, candidate, seconds, epilogue FROM times");
      while (problem.empty() && s.step()) {
        bool fits = s.is(8, SQLITE_FLOAT) && s.real(8) > 0 && std::isfinite(s.real(8)) && times_.size() < kMaxRows;
        for (const int c : {0, 2, 7}) fits = fits && s.is(c, SQLITE_TEXT) && plain(s.text(c));
        for (const int c : {1, 3, 4, 5, 6})
          fits = fits && s.is(c, SQLITE_INTEGER) && s.number(c) > 0 && s.number(c) <= kMaxSize;
        const bool library = s.is(9, SQLITE_INTEGER);
        fits = fits && (library ? s.number(9) >= 0 && s.number(9) < kEpilogues : s.is(9, SQLITE_NULL));
        if (!fits)
          problem = "a row has values that Sardonyx does not write";
        else
          times_[{s.text(0), s.number(1), s.text(2), s.number(3), s.number(4), s.number(5), s.number(6), s.text(7)}] = {
              s.real(8), library ? std::optional(epilogue_of(s.number(9))) : std::nullopt};
      }
    }
  } catch (const std::runtime_error& e) {
    problem = e.what();
  }
  sqlite3_close(std::exchange(db_, nullptr));
  if (!problem.empty()) damaged(problem);
}

std::vector<TunedSize> TuningDatabase::find(std::string_view arch, std::string_view problem) const {
  const std::lock_guard lock(mutex_);
  using Size = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  struct Best {
    std::int64_t units = 0;
    std::vector<std::tuple<double, std::string, std::optional<LibraryEpilogue>>> candidates;
  };
  std::map<Size, Best> best;
  for (const auto& [key, measured] : times_) {
    const auto& [a, units, p, batches, m, n, k, candidate] = key;
    if (a != arch || p != problem) continue;
    Best& b = best[{batches, m, n, k}];
    if (units > b.units) b = {units, {}};
    if (units == b.units) b.candidates.emplace_back(measured.seconds, candidate, measured.library);
  }
  std::vector<TunedSize> out;
  for (auto& [size, b] : best) {
    const auto& [batches, m, n, k] = size;
    std::sort(b.candidates.begin(), b.candidates.end(), [](const auto& x, const auto& y) {
      return std::tie(std::get<0>(x), std::get<1>(x)) < std::tie(std::get<0>(y), std::get<1>(y));
    });
    for (const auto& [seconds, candidate, library] : b.candidates)
      out.push_back({{batches, m, n, k}, candidate, library});
  }
  return out;
}

std::map<std::string, double> TuningDatabase::times(const TuningRow& like) const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, double> out;
  auto at = times_.lower_bound({like.arch, like.units, like.problem, like.batches, like.m, like.n, like.k, ""});
  for (; at != times_.end(); ++at) {
    const auto& [arch, units, problem, batches, m, n, k, candidate] = at->first;
    if (std::tie(arch, units, problem, batches, m, n, k) !=
        std::tie(like.arch, like.units, like.problem, like.batches, like.m, like.n, like.k))
      break;
    out[candidate] = at->second.seconds;
  }
  return out;
}

void TuningDatabase::add(const std::vector<TuningRow>& rows) {
  if (rows.empty()) return;
  const std::lock_guard lock(mutex_);
  if (!create_) fail(ErrorKind::kInvalidArgument, "{}: the tuning database was opened for reading", path_.string());
  std::string problem;
  try {
    if (!db_) {
      std::error_code ignored;
      const bool fresh = !std::filesystem::exists(path_, ignored);
      if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), ignored);
      open(true);
      if (fresh)
        run(db_, fmt::format("BEGIN IMMEDIATE; PRAGMA application_id = {}; PRAGMA user_version = {}; {}; COMMIT",
                             kApplication, kFormat, kSchema)
                     .c_str());
    }
    run(db_, "BEGIN IMMEDIATE");
    {
      Statement s(db_, "INSERT OR REPLACE INTO times VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
      for (const TuningRow& r : rows) {
        s.bind(1, r.arch);
        s.bind(2, r.units);
        s.bind(3, r.problem);
        s.bind(4, r.batches);
        s.bind(5, r.m);
        s.bind(6, r.n);
        s.bind(7, r.k);
        s.bind(8, r.candidate);
        s.bind(9, r.seconds);
        if (r.library)
          s.bind(10, std::int64_t{code_of(*r.library)});
        else
          s.bind_null(10);
        s.step();
        s.again();
      }
    }
    run(db_, "COMMIT");
  } catch (const std::runtime_error& e) {
    if (dynamic_cast<const Error*>(&e)) throw;
    problem = e.what();
    if (db_) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  if (!problem.empty()) fail(ErrorKind::kIo, "{} can't be written: {}", path_.string(), problem);
  for (const TuningRow& r : rows) times_[Key(r.key())] = {r.seconds, r.library};
}

std::vector<TuningRow> TuningDatabase::rows() const {
  const std::lock_guard lock(mutex_);
  std::vector<TuningRow> out;
  for (const auto& [key, measured] : times_) {
    const auto& [arch, units, problem, batches, m, n, k, candidate] = key;
    out.push_back({arch, units, problem, batches, m, n, k, candidate, measured.seconds, measured.library});
  }
  return out;
}

std::size_t TuningDatabase::merge(const TuningDatabase& other) {
  std::vector<TuningRow> wanted;
  const std::vector<TuningRow> theirs = other.rows();
  {
    const std::lock_guard lock(mutex_);
    for (const TuningRow& r : theirs) {
      const auto found = times_.find(Key(r.key()));
      if (found == times_.end() || r.seconds < found->second.seconds) wanted.push_back(r);
    }
  }
  add(wanted);
  return wanted.size();
}

}  // namespace sardonyx
