// The devices that models can run on.
#include <unistd.h>

#include <fstream>

#include "api/host_info.h"
#include "compile/compiler.h"
#include "device/device.h"
#include "sardonyx/sardonyx.h"
#include "support/cpu_count.h"

namespace sardonyx {
namespace {

std::string cpu_name() {
  std::ifstream f("/proc/cpuinfo");
  for (std::string line; std::getline(f, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  return "CPU";
}

}  // namespace

DeviceInfo host_info() {
  DeviceInfo host;
  host.name = "host";
  host.description = cpu_name();
  host.target = host_target().arch;
  host.threads = cpu_count();
  host.memory =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return host;
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> all = {host_info()};
  for (const GpuInfo& g : list_gpus()) all.push_back({g.name, g.description, g.target, g.units, g.memory});
  return all;
}

}  // namespace sardonyx
