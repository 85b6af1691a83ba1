// The devices that the provider offers: cards, the simulated card, or the host in the place of one. Their memory as
// ONNX Runtime sees it, and which device an address belongs to.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "device/device.h"
#include "sardonyx/device.h"

namespace sardonyx::ep {

inline constexpr std::uint32_t kAmd = 0x1002;       ///< PCI's number of the vendor
inline constexpr char kMemoryName[] = "Hip";        ///< of the device's memory, as onnxruntime-genai asks for it
inline constexpr char kPinnedName[] = "HipPinned";  ///< of the host's memory that the device reaches

class Card {
 public:
  Card(DeviceInfo info, int id);

  const DeviceInfo& info() const { return info_; }
  /// What ONNX Runtime calls it: 0, 1, ... in the order in which they are offered.
  int id() const { return id_; }
  bool is_host() const { return info_.name == "host"; }

  /// Memory of the device, at a multiple of 256 bytes.
  std::shared_ptr<void> allocate(std::size_t bytes);
  /// Memory of the host that the device reaches by itself.
  std::shared_ptr<void> allocate_pinned(std::size_t bytes);
  /// Without a stream the bytes have arrived when it returns; else they arrive in the stream's order.
  void copy(void* to, bool to_device, const void* from, bool from_device, std::size_t bytes, void* stream);
  /// Null on the host, where everything is done when a call returns.
  std::shared_ptr<void> create_stream();
  void synchronize(void* stream);
  /// Null on the host.
  std::unique_ptr<GpuEvent> create_event();

 private:
  DeviceInfo info_;
  int id_;
  Device device_;
  std::shared_ptr<Gpu> gpu_;  ///< null: the host
};

/// The devices that `wanted` names ("host", "hip:1,hip:3", "sim:gfx1100"); with an empty one, all of AMD's cards.
/// `problems`: why there are none, for the log. Throws Error for a name that can't be had.
std::vector<std::shared_ptr<Card>> find_cards(const std::string& wanted, std::vector<std::string>& problems);
/// The card of this name, the same object each time. `id` is for one that is new.
std::shared_ptr<Card> card_named(const std::string& name, int id);

/// Which addresses are memory of which card: what our allocators gave.
class Addresses {
 public:
  static Addresses& instance();
  void add(const void* begin, std::size_t bytes, Card* card);
  void remove(const void* begin);
  /// Null for memory that is not ours.
  Card* find(const void* p) const;

 private:
  struct Range {
    std::size_t bytes;
    Card* card;
  };
  mutable std::shared_mutex mutex_;
  std::map<const std::byte*, Range> ranges_;
};

}  // namespace sardonyx::ep
