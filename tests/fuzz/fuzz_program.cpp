// libFuzzer target: any bytes, as a program's structure (program/serialize.h). They must be refused with kInvalidModel,
// or give a program that keeps the rules of program/validate.h, whose expressions can be printed and evaluated, and
// that is written and read again unchanged. `fuzz_program -seeds=FOLDER` writes inputs to start from.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "../cpp/program/example.h"
#include "program/serialize.h"
#include "program/validate.h"
#include "support/error.h"

namespace sardonyx {
namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

std::span<const std::byte> bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }

const std::vector<Data>& constants() {
  static const std::vector<Data> data = example_program()->constants;
  return data;
}

// Values that reach overflow, division by zero and negative sizes.
void evaluate_everywhere(const Expr& e, std::size_t symbols) {
  require(e->op != Op::kSym || e->i < static_cast<std::int64_t>(symbols), "symbols exist");
  for (const std::int64_t v : {std::int64_t{0}, std::int64_t{3}, INT64_MAX, INT64_MIN, std::int64_t{-1}}) {
    SymbolValues values;
    for (std::size_t k = 0; k < std::min<std::size_t>(symbols, 64); ++k) values.set(static_cast<int>(k), v);
    try {
      evaluate(e, values);
    } catch (const Error&) {
    }
  }
  require(!to_string(e).empty(), "expressions can be printed");
}

void try_program(std::span<const std::byte> bytes) {
  std::shared_ptr<Program> p;
  try {
    p = deserialize(bytes, constants());
  } catch (const Error& e) {
    require(e.kind() == ErrorKind::kInvalidModel, e.what());
    return;
  }
  std::size_t budget = 200;  // of expressions, so that inputs stay quick
  for (const BufferInfo& b : p->buffers)
    for (const Expr& d : b.shape)
      if (budget > 0) --budget, evaluate_everywhere(d, p->symbol_names.size());
  const std::string once = serialize(*p);
  const auto again = deserialize(bytes_of(once), constants());
  require(serialize(*again) == once, "what is read and written is read again");
}

}  // namespace
}  // namespace sardonyx

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  using namespace sardonyx;
  for (int k = 1; k < *argc; ++k) {
    const std::string argument = (*argv)[k];
    if (!argument.starts_with("-seeds=")) continue;
    const std::filesystem::path folder = argument.substr(7);
    std::filesystem::create_directories(folder);
    const auto write = [&](const char* name, const Program& p) {
      std::ofstream(folder / name, std::ios::binary) << serialize(p);
    };
    auto p = example_program();
    write("all", *p);
    for (std::size_t step = 0; step < p->main.steps.size(); ++step) {
      auto one = example_program();
      std::swap(one->main.steps.front(), one->main.steps[step]);
      one->main.steps.resize(1);
      one->objects = Objects();
      write(("step" + std::to_string(step)).c_str(), *one);
    }
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sardonyx::try_program(std::as_bytes(std::span(data, size)));
  return 0;
}
