// Runs clang in process. The only file that includes clang's headers.
#include "compile/frontend.h"

#include <clang/Basic/DiagnosticOptions.h>
#include <clang/Basic/Stack.h>
#include <clang/Basic/Version.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <llvm/Support/VirtualFileSystem.h>

#include "compile/llvm_process.h"
#include "support/error.h"

namespace sardonyx {
namespace {

constexpr const char* kSourcePath = "kernel.cpp";

llvm::IntrusiveRefCntPtr<llvm::vfs::InMemoryFileSystem> files_of(std::string_view source,
                                                                 std::span<const SourceFile> headers) {
  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  files->setCurrentWorkingDirectory("/");
  // Copied, because clang wants a terminating zero that a string_view does not promise.
  files->addFile(kSourcePath, 0, llvm::MemoryBuffer::getMemBufferCopy({source.data(), source.size()}, kSourcePath));
  for (const SourceFile& h : headers) files->addFile(h.name, 0, llvm::MemoryBuffer::getMemBuffer(h.text, h.name));
  return files;
}

/// One compilation; runs on a thread of run_guarded.
bool run(const std::vector<std::string>& args, std::string_view source, std::span<const SourceFile> headers, Emit emit,
         std::string& output, std::string& diagnostics) {
  clang::noteBottomOfStack(true);
  std::vector<const char*> argv;
  for (const std::string& a : args) argv.push_back(a.c_str());
  argv.push_back(kSourcePath);

  llvm::raw_string_ostream log(diagnostics);
  auto files = files_of(source, headers);
  auto invocation = std::make_shared<clang::CompilerInvocation>();
  {
    clang::DiagnosticOptions options;
    clang::TextDiagnosticPrinter printer(log, options);
    auto engine = clang::CompilerInstance::createDiagnostics(*files, options, &printer, /*ShouldOwnClient=*/false);
    if (!clang::CompilerInvocation::CreateFromArgs(*invocation, argv, *engine)) return false;
  }

  llvm::SmallString<0> bytes;
  clang::CompilerInstance instance(std::move(invocation));
  instance.setVerboseOutputStream(std::make_unique<llvm::raw_null_ostream>());
  instance.setVirtualFileSystem(files);
  clang::TextDiagnosticPrinter printer(log, instance.getDiagnosticOpts());
  instance.createDiagnostics(&printer, /*ShouldOwnClient=*/false);
  instance.setOutputStream(std::make_unique<llvm::raw_svector_ostream>(bytes));
  std::unique_ptr<clang::CodeGenAction> action;
  if (emit == Emit::kObject) action = std::make_unique<clang::EmitObjAction>();
  if (emit == Emit::kAssembly) action = std::make_unique<clang::EmitAssemblyAction>();
  if (!instance.ExecuteAction(*action) || instance.getDiagnostics().hasErrorOccurred()) return false;
  output.assign(bytes.begin(), bytes.end());
  return true;
}

}  // namespace

std::string run_cc1(const std::vector<std::string>& args, std::string_view source, std::span<const SourceFile> headers,
                    Emit emit) {
  std::string output, diagnostics;
  bool done = false;
  run_guarded([&] { done = run(args, source, headers, emit, output, diagnostics); });
  if (!done) fail(ErrorKind::kCompile, "the embedded compiler refused the source:\n{}", diagnostics);
  return output;
}

std::string clang_version() { return clang::getClangFullVersion(); }

}  // namespace sardonyx
