#include "runtime/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "compile/hash.h"
#include "program/serialize.h"

namespace sardonyx {
namespace {

class Registry {
 public:
  static Registry& instance() {
    static auto* r = new Registry;  // never destroyed: may be in use while the process ends
    return *r;
  }

  std::shared_ptr<const UploadedConstant> find(const void* device, const Data& data) {
    for (const std::shared_ptr<const UploadedConstant>& u : candidates(device, data.size))
      if (u->data.bytes == data.bytes || std::memcmp(u->data.bytes, data.bytes, data.size) == 0) return u;
    return nullptr;
  }
  void add(const void* device, const std::shared_ptr<const UploadedConstant>& u) {
    const std::lock_guard lock(mutex_);
    all_[{device, u->data.size}].push_back(u);
  }

 private:
  std::vector<std::shared_ptr<const UploadedConstant>> candidates(const void* device, std::size_t size) {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<const UploadedConstant>> out;
    const auto it = all_.find({device, size});
    if (it == all_.end()) return out;
    std::erase_if(it->second, [&](const std::weak_ptr<const UploadedConstant>& w) {
      auto u = w.lock();
      if (u) out.push_back(u);
      return !u;
    });
    if (it->second.empty()) all_.erase(it);
    return out;
  }

  std::mutex mutex_;
  std::map<std::pair<const void*, std::size_t>, std::vector<std::weak_ptr<const UploadedConstant>>> all_;
};

}  // namespace

std::shared_ptr<const UploadedConstant> find_upload(const void* device, const Data& data) {
  return Registry::instance().find(device, data);
}
void share_upload(const void* device, const std::shared_ptr<const UploadedConstant>& constant) {
  Registry::instance().add(device, constant);
}

namespace {

std::mutex computed_mutex;
std::map<std::pair<const void*, std::string>, std::weak_ptr<const ComputedConstant>>& computed() {
  static auto* m = new std::map<std::pair<const void*, std::string>, std::weak_ptr<const ComputedConstant>>;
  return *m;
}

}  // namespace

std::shared_ptr<const ComputedConstant> find_computed(const void* device, const std::string& launch) {
  const std::lock_guard lock(computed_mutex);
  const auto it = computed().find({device, launch});
  return it == computed().end() ? nullptr : it->second.lock();
}
void share_computed(const void* device, const std::shared_ptr<const ComputedConstant>& constant) {
  const std::lock_guard lock(computed_mutex);
  std::erase_if(computed(), [](const auto& c) { return c.second.expired(); });
  computed()[{device, constant->launch}] = constant;
}

namespace {

using ProgramKey = std::pair<const void*, std::string>;

std::mutex programs_mutex;
std::map<ProgramKey, std::weak_ptr<const DeviceConstants>>& programs() {
  static auto* m = new std::map<ProgramKey, std::weak_ptr<const DeviceConstants>>;
  return *m;
}

ProgramKey key_of(const void* device, const Program& p) {
  const std::string structure = serialize_without_code(p);
  const std::string_view parts[] = {"constants", structure};
  const Hash key = hash_of_parts(parts);
  return {device, std::string(reinterpret_cast<const char*>(key.data()), key.size())};
}

bool equal(const std::vector<Data>& a, const std::vector<Data>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Data& x, const Data& y) {
    return x.size == y.size && (x.bytes == y.bytes || x.size == 0 || std::memcmp(x.bytes, y.bytes, x.size) == 0);
  });
}

}  // namespace

std::shared_ptr<const DeviceConstants> find_constants(const void* device, const Program& program) {
  std::shared_ptr<const DeviceConstants> c;
  {
    const ProgramKey key = key_of(device, program);
    const std::lock_guard lock(programs_mutex);
    std::erase_if(programs(), [](const auto& p) { return p.second.expired(); });
    const auto it = programs().find(key);
    if (it != programs().end()) c = it->second.lock();
  }
  return c && equal(c->program->constants, program.constants) ? c : nullptr;
}

void share_constants(const void* device, const std::shared_ptr<const DeviceConstants>& constants) {
  ProgramKey key = key_of(device, *constants->program);
  const std::lock_guard lock(programs_mutex);
  programs()[std::move(key)] = constants;
}

}  // namespace sardonyx
