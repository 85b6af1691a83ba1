// Assembly text to machine code, through LLVM's assembler: for tests that run single instructions.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

/// Machine code of `text` for `chip` ("gfx942") and a wave size. An error of the assembler fails the running test and
/// gives no code.
std::vector<std::uint8_t> assemble(const std::string& chip, int waveSize, const std::string& text);
