// One wave on the bench: registers are set, instructions assembled and executed, registers read back. No driver, no
// kernel descriptor, no memory.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/exec/wave.h"

class Lab {
 public:
  /// A wave with all lanes on, 256 vector and (where the chip has them) 256 accumulation registers, all zero; round to
  /// nearest even, denormals kept.
  explicit Lab(const std::string& chip, int waveSize = 0);
  ~Lab();

  /// Executes `text`, one instruction a line. A Fault or an instruction without a handler fails the test.
  void run(const std::string& text);
  /// Executes `text` and returns the message of the Fault it ends in, or "".
  std::string fault(const std::string& text);

  std::uint32_t& v(int reg, int lane = 0) { return wave.v[reg * wave.lanes + lane]; }
  std::uint32_t& a(int reg, int lane = 0) { return wave.a[reg * wave.lanes + lane]; }
  std::uint32_t& s(int reg) { return wave.s[reg]; }
  float f(int reg, int lane = 0) { return std::bit_cast<float>(v(reg, lane)); }
  std::uint64_t v64(int reg, int lane = 0) { return v(reg, lane) | static_cast<std::uint64_t>(v(reg + 1, lane)) << 32; }
  double d(int reg, int lane = 0) { return std::bit_cast<double>(v64(reg, lane)); }
  /// Sets all lanes of a register.
  void fill(int reg, std::uint32_t value) {
    for (int l = 0; l < wave.lanes; ++l) v(reg, l) = value;
  }
  void fill(int reg, float value) { fill(reg, std::bit_cast<std::uint32_t>(value)); }
  void fill64(int reg, std::uint64_t value) {
    fill(reg, static_cast<std::uint32_t>(value));
    fill(reg + 1, static_cast<std::uint32_t>(value >> 32));
  }
  void fill64(int reg, double value) { fill64(reg, std::bit_cast<std::uint64_t>(value)); }
  void setExec(std::uint64_t mask);
  /// MODE's rounding (0 even, 1 up, 2 down, 3 zero) of both widths, and whether denormals are kept.
  void setMode(unsigned rounding, bool keepDenormals);
  int lanes() const { return wave.lanes; }

  const std::string chip;
  sardonyx::sim::Wave wave;

 private:
  struct Code;
  const Code& code(const std::string& text);
};

inline const char* const kChips[] = {"gfx90a",  "gfx942",  "gfx950",  "gfx1030", "gfx1100", "gfx1101",
                                     "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200", "gfx1201"};
