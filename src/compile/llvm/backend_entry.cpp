// The entry point that libsardonyx looks up in this library.
#include "compile/backend.h"
#include "compile/llvm/amd_accumulators.h"
#include "compile/llvm/amd_link.h"
#include "compile/llvm/amd_report.h"
#include "compile/llvm/frontend.h"
#include "compile/llvm/jit_link.h"

extern "C" [[gnu::visibility("default")]] const sardonyx::CompilerBackend* sardonyx_compiler_backend() {
  static const sardonyx::CompilerBackend backend = {SARDONYX_VERSION,
                                                    sardonyx::run_cc1,
                                                    sardonyx::precompile_cc1,
                                                    sardonyx::link_amd,
                                                    sardonyx::keeps_own_registers,
                                                    sardonyx::read_amd,
                                                    sardonyx::jit_link};
  return &backend;
}
