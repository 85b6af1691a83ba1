// Decodes machine code through LLVM's AMDGPU disassembler into Inst. One decoder per chip and wave size; thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "sim/isa/chip.h"
#include "sim/isa/inst.h"

namespace sardonyx::sim {

class Decoder {
 public:
  /// Throws Error when LLVM does not know the chip.
  Decoder(const Chip& chip, int waveSize);
  ~Decoder();

  /// Decodes the instruction at `bytes`. Never null: an encoding that LLVM rejects, or an operation without a handler,
  /// gives an Inst whose fn is null, so that only executing it fails the launch.
  std::unique_ptr<Inst> decode(const std::uint8_t* bytes, std::size_t available, std::uint64_t pc);
  /// Assembly text of the instruction at `bytes`, for messages and traces.
  std::string text(const std::uint8_t* bytes, std::size_t available, std::uint64_t pc);

  /// The decoder shared by all code objects for this chip and wave size.
  static Decoder& shared(const Chip& chip, int waveSize);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sardonyx::sim
