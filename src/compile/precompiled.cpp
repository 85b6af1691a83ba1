// The process's precompiled headers.
#include "compile/precompiled.h"

#include <algorithm>
#include <future>
#include <mutex>
#include <optional>

#include "compile/backend.h"
#include "compile/cache.h"
#include "support/error.h"

namespace sardonyx {
namespace {

constexpr std::size_t kKept = 8;  // one per target in use; each takes about 20 times the memory of its text

using Shared = std::shared_future<std::shared_ptr<const std::string>>;
struct Entry {
  CacheKey key;
  Shared header;
};

/// The name in an #include "name" at the start of the source, after white space and // comments only.
std::optional<std::string_view> leading_include(std::string_view source) {
  for (;;) {
    source.remove_prefix(std::min(source.find_first_not_of(" \t\r\n"), source.size()));
    if (!source.starts_with("//")) break;
    const std::string_view comment = source.substr(0, source.find('\n'));
    if (comment.find('\\') != std::string_view::npos) return std::nullopt;  // might continue on the next line
    source.remove_prefix(comment.size());
  }
  constexpr std::string_view kInclude = "#include \"";
  if (!source.starts_with(kInclude)) return std::nullopt;
  source.remove_prefix(kInclude.size());
  const std::size_t end = source.find_first_of("\"\n");
  if (end == std::string_view::npos || source[end] != '"') return std::nullopt;
  return source.substr(0, end);
}

CacheKey key_of(const std::vector<std::string>& args, std::string_view name, std::span<const SourceFile> headers) {
  const std::string count = std::to_string(args.size());
  std::vector<std::string_view> parts = {"header", name, count};
  parts.insert(parts.end(), args.begin(), args.end());
  for (const SourceFile& h : headers) parts.insert(parts.end(), {h.name, h.text});
  return cache_key(parts);
}

std::shared_ptr<const std::string> make(const std::vector<std::string>& args, std::string_view name,
                                        std::span<const SourceFile> headers) {
  try {
    return std::make_shared<const std::string>(compiler_backend().precompile_cc1(args, name, headers));
  } catch (const Error&) {
    return nullptr;  // compiling the source reports the error, with the place of the include
  }
}

}  // namespace

std::shared_ptr<const std::string> precompiled_header(const std::vector<std::string>& args, std::string_view source,
                                                      std::span<const SourceFile> headers) {
  const auto name = leading_include(source);
  if (!name) return nullptr;
  const auto header =
      std::find_if(headers.begin(), headers.end(), [&](const SourceFile& h) { return h.name == *name; });
  // Without #pragma once the source's own #include would include the text again.
  if (header == headers.end() || header->text.find("#pragma once") == std::string::npos) return nullptr;

  static std::mutex mutex;
  static std::vector<Entry> entries;  // most recently used last
  std::promise<std::shared_ptr<const std::string>> promise;
  Shared shared;
  bool is_mine = false;
  const CacheKey key = key_of(args, *name, headers);
  {
    const std::lock_guard lock(mutex);
    const auto it = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == key; });
    if (it != entries.end()) {
      std::rotate(it, it + 1, entries.end());
    } else {
      if (entries.size() == kKept) entries.erase(entries.begin());
      entries.push_back({key, promise.get_future().share()});
      is_mine = true;
    }
    shared = entries.back().header;
  }
  if (is_mine) promise.set_value(make(args, *name, headers));
  return shared.get();
}

}  // namespace sardonyx
