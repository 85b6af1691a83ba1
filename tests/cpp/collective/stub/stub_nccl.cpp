// The part of NCCL's interface that the library uses, for ranks that are threads of one process and memory that the CPU
// can access, like that of simulated GPUs, so that it can be tested without a GPU. As in NCCL, a call waits until the
// other ranks arrive or the communicator is aborted.
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace {

struct Id {
  char bytes[128];
};

// Never destroyed: a thread that was given up while it joined may wait until the process ends, and destroying what it
// waits for would wait for it.
std::mutex& mutex = *new std::mutex;
std::condition_variable& changed = *new std::condition_variable;

struct Group {
  int size = 0, joined = 0, arrived = 0, left = 0;
  std::vector<const void*> parts;
  int turn = 0;
};

struct Comm {
  std::shared_ptr<Group> group;
  int rank = 0;
  bool aborted = false;
};

std::map<int, std::shared_ptr<Group>> groups;
int next_id = 1, error_of_all = 0, aborts = 0;

// All parts at the same time; `f` reads them. Not 0 if aborted.
template <typename F>
int together(Comm* c, const void* in, const F& f) {
  std::unique_lock lock(mutex);
  Group& g = *c->group;
  const int turn = g.turn;
  g.parts.resize(static_cast<std::size_t>(g.size));
  g.parts[static_cast<std::size_t>(c->rank)] = in;
  if (++g.arrived == g.size) {
    g.arrived = 0;
    ++g.turn;
  }
  changed.notify_all();
  changed.wait(lock, [&] { return g.turn != turn || c->aborted; });
  if (c->aborted) return 6;
  f(g.parts);
  // All must have read before anyone writes.
  const int reading = g.turn;
  if (++g.left == g.size) {
    g.left = 0;
    ++g.turn;
  }
  changed.notify_all();
  changed.wait(lock, [&] { return g.turn != reading || c->aborted; });
  return 0;
}

}  // namespace

extern "C" {

int ncclGetUniqueId(Id* id) {
  const std::lock_guard lock(mutex);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->bytes, &next_id, sizeof next_id);
  groups[next_id++] = std::make_shared<Group>();
  return 0;
}

int ncclCommInitRank(void** comm, int size, Id id, int rank) {
  std::unique_lock lock(mutex);
  int number = 0;
  std::memcpy(&number, id.bytes, sizeof number);
  const auto found = groups.find(number);
  if (found == groups.end()) return 4;
  auto group = found->second;
  group->size = size;
  ++group->joined;
  changed.notify_all();
  changed.wait(lock, [&] { return group->joined == size; });
  *comm = new Comm{group, rank};
  return 0;
}

int ncclAllReduce(const void* in, void* out, std::size_t n, int type, int op, void* comm, void* /*stream*/) {
  if (type != 7 || op != 0) return 4;
  auto* c = static_cast<Comm*>(comm);
  std::vector<float> sum(n);
  const int code = together(c, in, [&](const std::vector<const void*>& parts) {
    for (const void* p : parts)
      for (std::size_t k = 0; k < n; ++k) sum[k] += static_cast<const float*>(p)[k];
  });
  if (code == 0) std::memcpy(out, sum.data(), n * sizeof(float));
  return 0;  // the real one is asynchronous: an abort shows later
}

int ncclAllGather(const void* in, void* out, std::size_t n, int type, void* comm, void* /*stream*/) {
  if (type != 1) return 4;
  auto* c = static_cast<Comm*>(comm);
  std::vector<char> all;
  const int code = together(c, in, [&](const std::vector<const void*>& parts) {
    for (const void* p : parts) all.insert(all.end(), static_cast<const char*>(p), static_cast<const char*>(p) + n);
  });
  if (code == 0) std::memcpy(out, all.data(), all.size());
  return 0;
}

int ncclCommDestroy(void* comm) {
  delete static_cast<Comm*>(comm);
  return 0;
}

int ncclCommAbort(void* comm) {
  const std::lock_guard lock(mutex);
  static_cast<Comm*>(comm)->aborted = true;  // leaked: another thread may be in it
  ++aborts;
  changed.notify_all();
  return 0;
}

int ncclCommGetAsyncError(void* /*comm*/, int* error) {
  const std::lock_guard lock(mutex);
  *error = error_of_all;
  return 0;
}

const char* ncclGetErrorString(int code) { return code == 3 ? "a cable is loose" : "no success"; }

void stub_set_async_error(int code) {
  const std::lock_guard lock(mutex);
  error_of_all = code;
}
int stub_aborts() {
  const std::lock_guard lock(mutex);
  return aborts;
}
}
