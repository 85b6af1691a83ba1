// See lab.h.
#include "lab.h"

#include <map>
#include <memory>

#include "assembler.h"
#include "sim/exec/checks.h"
#include "sim/exec/fault.h"
#include "sim/exec/gpr_index.h"
#include "sim/isa/decoder.h"

using namespace sardonyx::sim;

struct Lab::Code {
  std::vector<std::uint8_t> bytes;
  std::vector<std::unique_ptr<Inst>> instructions;
};

Lab::Lab(const std::string& name, int waveSize) : chip(name) {
  const Chip* c = findChip(name);
  EXPECT_NE(c, nullptr);
  wave.chip = c;
  wave.lanes = waveSize ? waveSize : c->waveSize;
  wave.wave32 = wave.lanes == 32;
  wave.full = wave.wave32 ? 0xffffffffull : ~0ull;
  wave.vgprs = 256, wave.agprs = c->unifiedVgprs ? 256 : 0, wave.sgprs = 106;
  wave.registers.assign(static_cast<std::size_t>(512 * wave.lanes), 0);
  wave.v = wave.registers.data();
  wave.a = wave.v + 256 * wave.lanes;
  wave.checks = std::make_unique<WaveChecks>();
  static const Config config;
  wave.checks->config = &config;
  wave.checks->vectorPending.resize(256);
  wave.checks->accumPending.resize(256);
  wave.checks->vectorWritten.resize(256);
  wave.checks->accumWritten.resize(256);
  setExec(wave.full);
  setMode(0, true);
  wave.mode |= 0x100;  // DX10_CLAMP, as compilers set it
}

Lab::~Lab() = default;

void Lab::setExec(std::uint64_t mask) {
  wave.s[kExec] = static_cast<std::uint32_t>(mask);
  wave.s[kExec + 1] = wave.wave32 ? 0 : static_cast<std::uint32_t>(mask >> 32);
}

void Lab::setMode(unsigned rounding, bool keepDenormals) {
  wave.mode = (wave.mode & ~0xffu) | rounding | rounding << 2 | (keepDenormals ? 0xf0u : 0);
}

const Lab::Code& Lab::code(const std::string& text) {
  // Assembled once for each chip: LLVM's set-up costs more than most tests.
  static std::map<std::string, Code> cache;
  std::string key = chip + std::to_string(wave.lanes) + "\n" + text;
  auto [it, isNew] = cache.try_emplace(key);
  Code& c = it->second;
  if (!isNew) return c;
  c.bytes = assemble(chip, wave.lanes, text);
  Decoder& decoder = Decoder::shared(*wave.chip, wave.lanes);
  for (std::size_t at = 0; at < c.bytes.size();) {
    auto inst = decoder.decode(&c.bytes[at], c.bytes.size() - at, at);
    if (!inst->fn)
      ADD_FAILURE() << chip << ": " << decoder.text(&c.bytes[at], c.bytes.size() - at, at)
                    << (inst->op ? ": operand form is not implemented" : ": not implemented");
    at += inst->size;
    c.instructions.push_back(std::move(inst));
  }
  return c;
}

std::string Lab::fault(const std::string& text) {
  for (const auto& decoded : code(text).instructions) {
    if (!decoded->fn) return "not implemented";
    try {
      wave.current = decoded.get();
      std::unique_ptr<Inst> moved = wave.gprIndex ? withGprIndex(*decoded, wave) : nullptr;
      const Inst* inst = moved ? moved.get() : decoded.get();
      wave.nextPc = inst->pc + inst->size;
      wave.mask = wave.exec();
      checkBefore(wave, *inst);
      if (inst->pre) inst->pre(wave, *inst);
      inst->fn(wave, *inst);
      if (inst->post) inst->post(wave, *inst);
      checkAfter(wave, *inst);
    } catch (const Fault& f) {
      return f.what();
    }
  }
  return "";
}

void Lab::run(const std::string& text) {
  std::string message = fault(text);
  if (!message.empty()) ADD_FAILURE() << chip << ": " << text << ": " << message;
}
