// Part of every C++ test program that links the library: the graph is verified after every pass.
#include "fuse/passes.h"

namespace {
[[maybe_unused]] const bool kVerifies = [] {
  sardonyx::verify_every_pass(true);
  return true;
}();
}  // namespace
