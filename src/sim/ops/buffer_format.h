// Element formats of typed buffer accesses: raw bytes of an element to components and back.
#pragma once
#include <cstdint>

#include "sim/isa/chip.h"

namespace sardonyx::sim {

enum class NumberFormat : std::uint8_t { kUnorm, kSnorm, kUscaled, kSscaled, kUint, kSint, kFloat };

struct BufferFormat {
  NumberFormat number = NumberFormat::kUint;
  std::uint8_t components = 0;  ///< 0: not a format that the chip knows
  std::uint8_t bits[4] = {};    ///< width of each component, the first in the lowest bits

  unsigned bytes() const { return static_cast<unsigned>(bits[0] + bits[1] + bits[2] + bits[3]) / 8; }
  bool integer() const { return number == NumberFormat::kUint || number == NumberFormat::kSint; }
};

/// gfx9: data format [3:0] and number format [6:4]; later chips: the unified format. ISA documents, "Buffer Image
/// Formats" (MI300: data and number format tables; RDNA3: "Image and buffer formats").
BufferFormat bufferFormat(const Chip& chip, unsigned code);
/// The format field in the last dword of a resource, in the same coding.
unsigned formatOfResource(const Chip& chip, std::uint32_t word3);

/// Component `i` of the element at `raw` as a register value: float bits, or an integer.
std::uint32_t decodeComponent(const BufferFormat& f, const std::uint8_t* raw, int i);
/// Puts a register value into component `i` of an element, whose bytes were zero.
void encodeComponent(const BufferFormat& f, std::uint8_t* raw, int i, std::uint32_t value);

}  // namespace sardonyx::sim
