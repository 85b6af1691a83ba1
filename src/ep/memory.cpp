// Allocators and copies; see memory.h.
#include "ep/memory.h"

#include <bit>
#include <cstring>

namespace sardonyx::ep {
namespace {

Arena::Source source_of(const std::shared_ptr<ProviderDevice>& device, bool pinned, const ExternalMemory& external) {
  Arena::Source s;
  if (pinned) {
    s.allocate = [device](std::size_t n) { return device->allocate_pinned(n); };
    return s;
  }
  if (external.allocate && external.free) {
    s.allocate = external_source(external);
    if (external.empty_cache) s.empty_cache = std::bit_cast<void (*)()>(external.empty_cache);
    return s;
  }
  s.allocate = [device](std::size_t n) { return device->allocate(n); };
  return s;
}

}  // namespace

MemoryBudget::Source external_source(const ExternalMemory& external) {
  auto* allocate = std::bit_cast<void* (*)(std::size_t)>(external.allocate);
  auto* release = std::bit_cast<void (*)(void*)>(external.free);
  auto* empty_cache = std::bit_cast<void (*)()>(external.empty_cache);
  return [allocate, release, empty_cache](std::size_t n) {
    void* p = allocate(n);
    if (!p && empty_cache) {
      empty_cache();
      p = allocate(n);
    }
    if (!p) fail(ErrorKind::kDevice, "the application's allocator (gpu_external_alloc) could not allocate {} bytes", n);
    return std::shared_ptr<void>(p, release);
  };
}

OrtMemoryInfo* memory_info(const Ort& ort, int id, bool pinned) {
  OrtMemoryInfo* info = nullptr;
  ort.require(ort->CreateMemoryInfo_V2(pinned ? kPinnedName : kMemoryName, OrtMemoryInfoDeviceType_GPU, kAmd, id,
                                       pinned ? OrtDeviceMemoryType_HOST_ACCESSIBLE : OrtDeviceMemoryType_DEFAULT,
                                       /*alignment=*/0, OrtDeviceAllocator, &info));
  return info;
}

Allocator::Allocator(const Ort& ort, const std::shared_ptr<ProviderDevice>& device, int id, bool pinned,
                     const ArenaOptions& options, const ExternalMemory& external, Log log)
    : OrtAllocator{},
      ort_(ort),
      device_(device),
      log_(log),
      arena_(source_of(device, pinned, external), options,
             fmt::format("{} on {}", pinned ? "pinned memory" : "memory", device->info().name)) {
  info_ = memory_info(ort, id, pinned);
  if (!pinned)
    arena_.on_chunk = [c = device.get()](const void* begin, std::size_t bytes, bool added) {
      if (added)
        Addresses::instance().add(begin, bytes, c);
      else
        Addresses::instance().remove(begin);
    };
  version = 23;
  Alloc = do_alloc;
  Reserve = do_alloc;
  Free = [](OrtAllocator* self, void* p) { static_cast<Allocator*>(self)->arena_.free(p); };
  Info = [](const OrtAllocator* self) -> const OrtMemoryInfo* { return static_cast<const Allocator*>(self)->info_; };
  GetStats = do_stats;
  AllocOnStream = nullptr;
}

Allocator::~Allocator() { ort_->ReleaseMemoryInfo(info_); }

namespace {
thread_local std::string t_failure;  // NOLINT: a plain string
}  // namespace

const std::string& last_allocation_failure() { return t_failure; }

// A null pointer is the only failure that the runtime knows, so the reason is logged and kept for the first user of the
// pointer.
void* Allocator::do_alloc(OrtAllocator* self, std::size_t bytes) {
  auto* a = static_cast<Allocator*>(self);
  try {
    return a->arena_.allocate(bytes);
  } catch (const std::exception& e) {
    t_failure = e.what();
    a->log_.error("{}", t_failure);
    return nullptr;
  }
}

OrtStatus* Allocator::do_stats(const OrtAllocator* self, OrtKeyValuePairs** out) noexcept {
  const auto* a = static_cast<const Allocator*>(self);
  return a->ort_.guarded([&] {
    const ArenaStats s = a->arena_.stats();
    OrtKeyValuePairs* p = nullptr;
    a->ort_->CreateKeyValuePairs(&p);
    const auto add = [&](const char* key, const std::string& value) {
      a->ort_->AddKeyValuePair(p, key, value.c_str());
    };
    add("Limit", s.limit ? std::to_string(s.limit) : "-1");
    add("InUse", std::to_string(s.in_use));
    add("TotalAllocated", std::to_string(s.total));
    add("MaxInUse", std::to_string(s.max_in_use));
    add("NumAllocs", std::to_string(s.allocations));
    add("NumArenaExtensions", std::to_string(s.extensions));
    add("MaxAllocSize", std::to_string(s.largest));
    *out = p;
  });
}

DataTransfer::DataTransfer(const Ort& ort, std::vector<std::shared_ptr<ProviderDevice>> devices)
    : OrtDataTransferImpl{}, ort_(ort), devices_(std::move(devices)) {
  ort_version_supported = 23;
  Release = [](OrtDataTransferImpl* self) noexcept { delete static_cast<DataTransfer*>(self); };
  CanCopy = can_copy;
  CopyTensors = copy;
}

namespace {

bool is_ours(const Ort& ort, const OrtMemoryDevice* d) {
  return ort.ep().MemoryDevice_GetDeviceType(d) == OrtMemoryInfoDeviceType_GPU &&
         ort.ep().MemoryDevice_GetVendorId(d) == kAmd;
}
bool is_host(const Ort& ort, const OrtMemoryDevice* d) {
  return ort.ep().MemoryDevice_GetDeviceType(d) == OrtMemoryInfoDeviceType_CPU ||
         ort.ep().MemoryDevice_GetMemoryType(d) == OrtDeviceMemoryType_HOST_ACCESSIBLE;
}

}  // namespace

bool DataTransfer::can_copy(const OrtDataTransferImpl* self, const OrtMemoryDevice* from,
                            const OrtMemoryDevice* to) noexcept {
  const Ort& ort = static_cast<const DataTransfer*>(self)->ort_;
  const bool ours_from = is_ours(ort, from), ours_to = is_ours(ort, to);
  return (ours_from && ours_to) || (ours_from && is_host(ort, to)) || (is_host(ort, from) && ours_to);
}

ProviderDevice* DataTransfer::device_of(const OrtValue* v, const void* data) const {
  const OrtMemoryDevice* d = ort_.ep().Value_GetMemoryDevice(v);
  if (!d || !is_ours(ort_, d) || is_host(ort_, d)) return nullptr;
  if (ProviderDevice* c = Addresses::instance().find(data)) return c;
  const std::uint32_t id = ort_.ep().MemoryDevice_GetDeviceId(d);  // memory that the application allocated
  for (const auto& c : devices_)
    if (static_cast<std::uint32_t>(c->id()) == id) return c.get();
  fail(ErrorKind::kInvalidArgument, "a tensor lies on device {}, which this provider does not offer", id);
}

OrtStatus* DataTransfer::copy(OrtDataTransferImpl* self, const OrtValue** from, OrtValue** to, OrtSyncStream** streams,
                              std::size_t count) noexcept {
  const auto* t = static_cast<const DataTransfer*>(self);
  const Ort& ort = t->ort_;
  return ort.guarded([&] {
    for (std::size_t k = 0; k < count; ++k) {
      const void* source = nullptr;
      void* target = nullptr;
      std::size_t bytes = 0, capacity = 0;
      ort.require(ort->GetTensorData(from[k], &source));
      ort.require(ort->GetTensorMutableData(to[k], &target));
      ort.require(ort->GetTensorSizeInBytes(from[k], &bytes));
      ort.require(ort->GetTensorSizeInBytes(to[k], &capacity));
      if (bytes > capacity)
        fail(ErrorKind::kInvalidArgument, "a tensor of {} bytes is copied into one of {}", bytes, capacity);
      if (bytes == 0) continue;
      if (!source || !target)
        fail(ErrorKind::kDevice, "no memory for a tensor of {} bytes: {}", bytes, last_allocation_failure());
      ProviderDevice* a = t->device_of(from[k], source);
      ProviderDevice* b = t->device_of(to[k], target);
      void* stream = streams && streams[k] ? ort->SyncStream_GetHandle(streams[k]) : nullptr;
      if (a && b && a != b) {  // from device to device through the host
        const std::unique_ptr<char[]> middle(new char[bytes]);
        a->copy(middle.get(), false, source, true, bytes, nullptr);
        b->copy(target, true, middle.get(), false, bytes, nullptr);
      } else if (a || b) {
        (a ? a : b)->copy(target, b != nullptr, source, a != nullptr, bytes, stream);
      } else {
        std::memmove(target, source, bytes);
      }
    }
  });
}

}  // namespace sardonyx::ep
