// What an executing instruction throws to fail its launch. The interpreter adds kernel, source line, instruction and
// wave.
#pragma once
#include <cstdint>
#include <exception>
#include <string>

namespace sardonyx::sim {

struct Fault : std::exception {
  std::string what_;
  int lane = -1;  ///< lane within the wave, or -1 when the whole wave is at fault
  bool hasAddress = false;
  std::uint64_t address = 0;

  explicit Fault(std::string message, int faultyLane = -1) : what_(std::move(message)), lane(faultyLane) {}
  Fault(std::string message, int faultyLane, std::uint64_t at)
      : what_(std::move(message)), lane(faultyLane), hasAddress(true), address(at) {}
  const char* what() const noexcept override { return what_.c_str(); }
};

}  // namespace sardonyx::sim
