// Finds cards by name.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>

#include "device/device.h"
#include "device/driver.h"
#include "support/error.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

constexpr std::string_view kSimulated = "sim";

struct Name {
  std::string kind, rest;
};

Name split(std::string_view name) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  return {std::string(name.substr(0, colon)), std::string(name.substr(std::min(colon + 1, name.size())))};
}

}  // namespace

bool is_gpu_name(std::string_view name) {
  const Name n = split(name);
  return n.kind == "hip" || n.kind == "cuda" || n.kind == kSimulated;
}

bool is_simulated_name(std::string_view name) { return split(name).kind == kSimulated; }

std::string first_card_for(std::string_view chip) { return chip_of(chip).is_nvidia() ? "cuda" : "hip"; }

std::shared_ptr<Gpu> open_gpu(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Gpu>> open;
  const Name n = split(name);
  int ordinal = 0;
  const bool sim = n.kind == kSimulated;
  if (sim) {
    const auto chip = std::find(sim_chips().begin(), sim_chips().end(), n.rest);
    ordinal = chip == sim_chips().end() ? -1 : static_cast<int>(chip - sim_chips().begin());
    if (ordinal < 0)
      fail(ErrorKind::kInvalidArgument, "no chip '{}' can be simulated; there are {}", n.rest,
           fmt::join(sim_chips(), ", "));
  } else if (!n.rest.empty()) {
    const auto [end, error] = std::from_chars(n.rest.data(), n.rest.data() + n.rest.size(), ordinal);
    if (error != std::errc() || *end != 0 || ordinal < 0) ordinal = -1;
  }
  if (!is_gpu_name(name) || ordinal < 0)
    fail(ErrorKind::kInvalidArgument,
         "no device is called '{}'; there are host, hip, hip:1, cuda, cuda:1, sim:gfx942 and the like", name);
  const std::string full = sim ? name : n.kind + ":" + std::to_string(ordinal);
  const std::lock_guard lock(mutex);
  std::shared_ptr<Gpu>& gpu = open[full];
  if (!gpu) gpu = make_gpu(sim ? sim_driver() : n.kind == "hip" ? hip_driver() : cuda_driver(), ordinal, full);
  return gpu;
}

std::vector<GpuInfo> list_gpus(std::vector<std::string>* problems) {
  std::vector<GpuInfo> found;
  for (const char* kind : {"hip", "cuda"}) {
    try {
      const Driver& d = std::strcmp(kind, "hip") == 0 ? hip_driver() : cuda_driver();
      int count = 0;
      d.require(d.device_count(&count), "counting devices");
      if (count == 0 && problems)
        problems->push_back(fmt::format("{}: the driver has no card{}", kind, d.form->advice()));
      for (int k = 0; k < count; ++k) {
        try {
          found.push_back(open_gpu(fmt::format("{}:{}", kind, k))->info());
        } catch (const Error& e) {
          if (problems) problems->push_back(e.what());
        }
      }
    } catch (const Error& e) {
      if (problems) problems->push_back(e.what());
    }
  }
  return found;
}

}  // namespace sardonyx
