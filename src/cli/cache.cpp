// sardonyx cache: the directory, size and clearing of the cache of compiled code.
#include "compile/cache.h"

#include <fmt/format.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "support/error.h"

namespace sardonyx::cli {

void cache_command(const Arguments& arguments) {
  const auto& directory = arguments.model.compile.cache_dir;
  if (directory.empty())
    fail(ErrorKind::kInvalidArgument, "there is no cache: name a folder with --cache-dir or SARDONYX_CACHE_DIR");
  if (arguments.cache_action == "dir") {
    fmt::print("{}\n", directory.string());
    return;
  }
  // A directory that does not exist is an empty cache; looking at it does not create it.
  std::error_code ignored;
  CacheStats stats;
  CacheOptions c;
  c.directory = directory;
  if (std::filesystem::exists(directory, ignored)) {
    CodeCache cache(c);
    stats = cache.stats();
    if (!stats.warning.empty())
      fail(ErrorKind::kIo, "the cache in {} can't be used: {}", directory.string(), stats.warning);
    if (arguments.cache_action == "clear") {
      cache.clear();
      const CacheStats after = cache.stats();
      if (after.entries > 0 || !after.warning.empty())
        fail(ErrorKind::kIo, "{}: {} entries could not be deleted {}", directory.string(), after.entries,
             after.warning);
    }
  }
  if (arguments.cache_action == "clear")
    fmt::print("deleted {} entries, {}\n", stats.entries, human_bytes(static_cast<double>(stats.bytes)));
  else
    fmt::print("{}: {} entries, {} of at most {}\n", directory.string(), stats.entries,
               human_bytes(static_cast<double>(stats.bytes)), human_bytes(static_cast<double>(c.max_bytes)));
}

}  // namespace sardonyx::cli
