// The host as a device.
#pragma once
#include "sardonyx/options.h"

namespace sardonyx {

DeviceInfo host_info();

}  // namespace sardonyx
