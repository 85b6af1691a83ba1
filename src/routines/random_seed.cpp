// random_seed: the seed of operators that draw random numbers and have no seed of their own.
#include <atomic>
#include <random>

#include "routines/families.h"

namespace sardonyx::routines {
namespace {

// random_seed
//   outputs: seed [] uint64, a different one at every call
//   params:  a number that is unique to the node
void random_seed(Call& c) {
  static const std::uint64_t start = [] {
    std::random_device device;
    return static_cast<std::uint64_t>(device()) << 32 | device();
  }();
  static std::atomic<std::uint64_t> calls{0};
  // Adding an odd constant modulo 2^64 visits every value before any repeats.
  *c.outputs[0].as<std::uint64_t>() = start + 0x9e3779b97f4a7c15U * (calls++ + 1);
}

}  // namespace

void register_random_seed(Table& t) { t["random_seed"] = random_seed; }

}  // namespace sardonyx::routines
