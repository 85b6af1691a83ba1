#include "program/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "compile/cache.h"
#include "onnx/external_data.h"
#include "program/serialize.h"

namespace sardonyx {
namespace {

constexpr std::size_t kLarge = std::size_t{64} << 10;  // bytes worth looking for
constexpr std::size_t kAlignment = 256;

/// A large constant on a GPU, and what it was uploaded from.
struct Uploaded {
  Data data;
  std::shared_ptr<void> memory;
};

class Registry {
 public:
  static Registry& instance() {
    static auto* r = new Registry;  // outlives whatever still refers to it as the process ends
    return *r;
  }

  std::shared_ptr<const Uploaded> find(const Gpu& gpu, const Data& data) {
    for (const std::shared_ptr<const Uploaded>& u : candidates(gpu, data.size))
      if (u->data.bytes == data.bytes || std::memcmp(u->data.bytes, data.bytes, data.size) == 0) return u;
    return nullptr;
  }
  void add(const Gpu& gpu, const std::shared_ptr<const Uploaded>& u) {
    const std::lock_guard lock(mutex_);
    all_[{&gpu, u->data.size}].push_back(u);
  }

 private:
  std::vector<std::shared_ptr<const Uploaded>> candidates(const Gpu& gpu, std::size_t size) {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<const Uploaded>> out;
    const auto it = all_.find({&gpu, size});
    if (it == all_.end()) return out;
    std::erase_if(it->second, [&](const std::weak_ptr<const Uploaded>& w) {
      auto u = w.lock();
      if (u) out.push_back(u);
      return !u;
    });
    if (it->second.empty()) all_.erase(it);
    return out;
  }

  std::mutex mutex_;
  std::map<std::pair<const Gpu*, std::size_t>, std::vector<std::weak_ptr<const Uploaded>>> all_;
};

}  // namespace

DeviceConstants upload_constants(DeviceMemory& memory, std::shared_ptr<const Program> program) {
  const Program& p = *program;
  Gpu& gpu = memory.gpu();
  GpuTransfers transfers(memory.shared_gpu());
  const std::shared_ptr<void> stream = gpu.create_stream();
  DeviceConstants c;
  c.addresses.assign(p.buffers.size(), nullptr);
  c.owners.assign(p.buffers.size(), nullptr);
  const auto data = [&](std::size_t k) { return &p.constants[static_cast<std::size_t>(p.buffers[k].constant)]; };
  const auto rounded = [](std::size_t n) {
    return (std::max<std::size_t>(n, 1) + kAlignment - 1) / kAlignment * kAlignment;
  };
  std::size_t small = 0;
  for (std::size_t k = 0; k < p.buffers.size(); ++k)
    if (p.buffers[k].kind == BufferInfo::Kind::kConstant && data(k)->size < kLarge) small += rounded(data(k)->size);
  const std::shared_ptr<void> block = small > 0 ? memory.allocate(small) : nullptr;
  std::size_t at = 0;
  std::vector<std::shared_ptr<const Uploaded>> fresh;
  for (std::size_t k = 0; k < p.buffers.size(); ++k) {
    if (p.buffers[k].kind != BufferInfo::Kind::kConstant) continue;
    const Data& d = *data(k);
    c.bytes += d.size;
    if (d.size < kLarge) {
      char* place = static_cast<char*>(block.get()) + at;
      transfers.upload(place, d.bytes, d.size, stream.get());
      c.addresses[k] = place;
      c.owners[k] = block;
      at += rounded(d.size);
      continue;
    }
    std::shared_ptr<const Uploaded> u = Registry::instance().find(gpu, d);
    if (!u) {
      u = std::make_shared<const Uploaded>(Uploaded{d, memory.allocate(d.size)});
      transfers.upload(u->memory.get(), d.bytes, d.size, stream.get());
      fresh.push_back(u);
      onnx::forget_pages(d.bytes, d.size);
    }
    c.addresses[k] = u->memory.get();
    c.owners[k] = std::move(u);
  }
  gpu.synchronize(stream.get());
  for (const auto& u : fresh) Registry::instance().add(gpu, u);
  c.program = std::move(program);
  return c;
}

namespace {

using ProgramKey = std::pair<const Gpu*, std::string>;

std::mutex programs_mutex;
std::map<ProgramKey, std::weak_ptr<const DeviceConstants>>& programs() {
  static auto* m = new std::map<ProgramKey, std::weak_ptr<const DeviceConstants>>;
  return *m;
}

ProgramKey key_of(const Gpu& gpu, const Program& p) {
  const std::string structure = serialize(p);
  const std::string_view parts[] = {"constants", structure};
  const auto key = cache_key(parts).bytes;
  return {&gpu, std::string(reinterpret_cast<const char*>(key.data()), key.size())};
}

bool equal(const std::vector<Data>& a, const std::vector<Data>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Data& x, const Data& y) {
    return x.size == y.size && (x.bytes == y.bytes || x.size == 0 || std::memcmp(x.bytes, y.bytes, x.size) == 0);
  });
}

}  // namespace

std::shared_ptr<const DeviceConstants> find_constants(const Gpu& gpu, const Program& program) {
  std::shared_ptr<const DeviceConstants> c;
  {
    const ProgramKey key = key_of(gpu, program);
    const std::lock_guard lock(programs_mutex);
    std::erase_if(programs(), [](const auto& p) { return p.second.expired(); });
    const auto it = programs().find(key);
    if (it != programs().end()) c = it->second.lock();
  }
  return c && equal(c->program->constants, program.constants) ? c : nullptr;
}

void share_constants(const Gpu& gpu, const std::shared_ptr<const DeviceConstants>& constants) {
  ProgramKey key = key_of(gpu, *constants->program);
  const std::lock_guard lock(programs_mutex);
  programs()[std::move(key)] = constants;
}

}  // namespace sardonyx
