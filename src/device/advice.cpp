#include "device/advice.h"

#include <unistd.h>

#include <system_error>

namespace sardonyx {

namespace fs = std::filesystem;

const FileAccess& FileAccess::system() {
  static const FileAccess files = {[](const fs::path& p) { return ::access(p.c_str(), F_OK) == 0; },
                                   [](const fs::path& p) { return ::access(p.c_str(), R_OK | W_OK) == 0; }};
  return files;
}

std::string amd_advice(const fs::path& dev, const FileAccess& files) {
  constexpr const char* kGroups =
      " may not be opened by this user: add them to the groups render and video, and log "
      "in again; a container needs --device /dev/kfd --device /dev/dri";
  const fs::path kfd = dev / "kfd";
  if (!files.exists(kfd))
    return "; there is no " + kfd.string() +
           ": load the amdgpu kernel driver, or give a container --device /dev/kfd --device /dev/dri";
  if (!files.usable(kfd)) return "; " + kfd.string() + kGroups;
  bool any = false;
  std::error_code ignored;
  for (const fs::directory_entry& e : fs::directory_iterator(dev / "dri", ignored)) {
    if (!e.path().filename().string().starts_with("renderD")) continue;
    any = true;
    if (!files.usable(e.path())) return "; " + e.path().string() + kGroups;
  }
  if (!any)
    return "; there is no " + (dev / "dri").string() +
           "/renderD128: no card is driven by amdgpu, or a container lacks " + "--device /dev/dri";
  return "";
}

std::string nvidia_advice(const fs::path& dev, const FileAccess& files) {
  const fs::path control = dev / "nvidiactl";
  if (!files.exists(control))
    return "; there is no " + control.string() + ": load NVIDIA's kernel driver, or give a container --gpus all";
  if (!files.usable(control)) return "; " + control.string() + " may not be opened by this user";
  return "";
}

}  // namespace sardonyx
