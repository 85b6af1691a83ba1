// Process-wide initialisation of LLVM, and the thread on which every compilation runs.
#include "compile/llvm/llvm_process.h"

#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/thread.h>

#include <csetjmp>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <string>

#include "support/error.h"

namespace sardonyx {
namespace {

constexpr unsigned kStackBytes = 64u << 20;  // address space; pages are allocated on first use

struct Escape {
  std::jmp_buf jump;
  std::string reason;
};
thread_local Escape* escape = nullptr;

// LLVM is compiled without exceptions, so an exception can't propagate through it reliably. longjmp can: the frames
// that it skips own only memory of this one compilation.
void on_fatal_error(void*, const char* reason, bool) {
  if (escape == nullptr) {  // LLVM is used by someone else in the process: default behaviour
    std::fprintf(stderr, "LLVM ERROR: %s\n", reason);
    return;
  }
  escape->reason = reason;
  std::longjmp(escape->jump, 1);
}

void run_with_escape(const std::function<void()>& work, Escape& e) {
  if (setjmp(e.jump) == 0) {
    escape = &e;
    work();
  }
  escape = nullptr;
}

}  // namespace

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
#define SARDONYX_BACK_END(name)       \
  LLVMInitialize##name##TargetInfo(); \
  LLVMInitialize##name##Target();     \
  LLVMInitialize##name##TargetMC();   \
  LLVMInitialize##name##AsmPrinter();
    SARDONYX_BACK_END(X86)
    SARDONYX_BACK_END(AArch64)
    SARDONYX_BACK_END(AMDGPU)
    SARDONYX_BACK_END(NVPTX)
#undef SARDONYX_BACK_END
    LLVMInitializeX86AsmParser();  // for inline assembly; NVPTX passes it through as text
    LLVMInitializeAArch64AsmParser();
    LLVMInitializeAMDGPUAsmParser();
    llvm::install_fatal_error_handler(on_fatal_error);
  });
}

void run_guarded(const std::function<void()>& work) {
  initialize_llvm();
  Escape e;
  std::exception_ptr thrown;
  llvm::thread thread(std::optional<unsigned>(kStackBytes), [&] {
    try {
      run_with_escape(work, e);
    } catch (...) {
      escape = nullptr;
      thrown = std::current_exception();
    }
  });
  thread.join();
  if (thrown) std::rethrow_exception(thrown);
  if (!e.reason.empty()) fail(ErrorKind::kCompile, "the embedded compiler's back end failed: {}", e.reason);
}

}  // namespace sardonyx
