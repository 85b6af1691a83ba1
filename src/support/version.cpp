// The library's version, which CMakeLists.txt in the root sets.
#include "support/version.h"

namespace sardonyx {

std::string_view version() { return SARDONYX_VERSION; }

}  // namespace sardonyx
