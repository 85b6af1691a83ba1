// compile_all(): compiles on several threads, through the cache.
#include <array>
#include <map>
#include <mutex>

#include "compile/cache.h"
#include "compile/compiler.h"
#include "support/tasks.h"

namespace sardonyx {
namespace {

std::string compile_one(const CompileJob& job, const CacheKey& key, CodeCache* cache) {
  if (cache != nullptr)
    if (auto found = cache->get(key)) return std::move(*found);
  std::string code = compile(job.source, job.headers, job.target, job.options);
  if (cache != nullptr) cache->put(key, code);
  return code;
}

}  // namespace

std::string compile(const CompileJob& job, CodeCache* cache) { return compile_one(job, cache_key(job), cache); }

std::vector<std::string> compile_all(std::span<const CompileJob> jobs, int threads, CodeCache* cache,
                                     const std::function<void(std::size_t, std::size_t)>& progress) {
  std::vector<CacheKey> keys;
  std::vector<std::size_t> same_as(jobs.size());  // index of the first job with this key
  std::vector<std::size_t> work;
  std::map<std::array<std::uint8_t, 32>, std::size_t> first;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    keys.push_back(cache_key(jobs[i]));
    const auto [it, is_new] = first.emplace(keys[i].bytes, i);
    same_as[i] = it->second;
    if (is_new) work.push_back(i);
  }

  std::vector<std::string> results(jobs.size());
  std::mutex progress_mutex;
  std::size_t done = 0;
  run_tasks(work.size(), threads, [&](std::size_t i) {
    results[work[i]] = compile_one(jobs[work[i]], keys[work[i]], cache);
    if (progress) {
      std::lock_guard lock(progress_mutex);
      progress(++done, work.size());
    }
  });
  for (std::size_t i = 0; i < jobs.size(); ++i)
    if (same_as[i] != i) results[i] = results[same_as[i]];
  return results;
}

}  // namespace sardonyx
