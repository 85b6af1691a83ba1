// Runs clang in process. The only file that includes clang's headers.
#include "compile/llvm/frontend.h"

#include <clang/Basic/DiagnosticOptions.h>
#include <clang/Basic/Stack.h>
#include <clang/Basic/Version.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/FrontendActions.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <clang/Serialization/ASTWriter.h>
#include <clang/Serialization/PCHContainerOperations.h>
#include <llvm/Support/VirtualFileSystem.h>

#include "compile/llvm/kernel_attributes.h"
#include "compile/llvm/llvm_process.h"
#include "support/error.h"

namespace sardonyx {
namespace {

constexpr const char* kSourcePath = "kernel.cpp";
constexpr const char* kPrecompiledPath = "precompiled.pch";

using Files = llvm::IntrusiveRefCntPtr<llvm::vfs::InMemoryFileSystem>;

void add(llvm::vfs::InMemoryFileSystem& files, const std::string& name, std::unique_ptr<llvm::MemoryBuffer> text) {
  if (!files.addFile(name, 0, std::move(text)))
    fail(ErrorKind::kInvalidArgument, "two files for the embedded compiler have the name \"{}\"", name);
}

Files files_of(std::span<const SourceFile> headers) {
  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  files->setCurrentWorkingDirectory("/");
  for (const SourceFile& h : headers) add(*files, h.name, llvm::MemoryBuffer::getMemBuffer(h.text, h.name));
  return files;
}

/// Writes the precompiled header to memory; clang's own action supports only files.
class PrecompileAction : public clang::GeneratePCHAction {
 public:
  explicit PrecompileAction(std::shared_ptr<clang::PCHBuffer> buffer) : buffer_(std::move(buffer)) {}

 protected:
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance& instance, llvm::StringRef) override {
    return std::make_unique<clang::PCHGenerator>(instance.getPreprocessor(), instance.getModuleCache(),
                                                 kPrecompiledPath, "", buffer_, instance.getCodeGenOpts(),
                                                 llvm::ArrayRef<std::shared_ptr<clang::ModuleFileExtension>>(),
                                                 /*AllowASTWithErrors=*/false, /*IncludeTimestamps=*/false);
  }

 private:
  std::shared_ptr<clang::PCHBuffer> buffer_;
};

/// One run of clang, on a thread of run_guarded. True if there was no error.
bool run(const std::vector<std::string>& args, const Files& files, clang::FrontendAction& action,
         llvm::SmallVectorImpl<char>& output, std::string& diagnostics) {
  clang::noteBottomOfStack(true);
  std::vector<const char*> argv;
  for (const std::string& a : args) argv.push_back(a.c_str());

  llvm::raw_string_ostream log(diagnostics);
  auto invocation = std::make_shared<clang::CompilerInvocation>();
  {
    clang::DiagnosticOptions options;
    clang::TextDiagnosticPrinter printer(log, options);
    auto engine = clang::CompilerInstance::createDiagnostics(*files, options, &printer, /*ShouldOwnClient=*/false);
    if (!clang::CompilerInvocation::CreateFromArgs(*invocation, argv, *engine)) return false;
  }

  auto& callbacks = invocation->getCodeGenOpts().PassBuilderCallbacks;
  callbacks.emplace_back(add_kernel_attributes);
  if (!invocation->getLangOpts().CUDA && llvm::Triple(invocation->getTargetOpts().Triple).isAMDGPU())
    callbacks.emplace_back(skip_idle_passes);
  clang::CompilerInstance instance(std::move(invocation));
  instance.setVerboseOutputStream(std::make_unique<llvm::raw_null_ostream>());
  instance.setVirtualFileSystem(files);
  clang::TextDiagnosticPrinter printer(log, instance.getDiagnosticOpts());
  instance.createDiagnostics(&printer, /*ShouldOwnClient=*/false);
  instance.setOutputStream(std::make_unique<llvm::raw_svector_ostream>(output));
  return instance.ExecuteAction(action) && !instance.getDiagnostics().hasErrorOccurred();
}

[[noreturn]] void refuse(const std::string& diagnostics) {
  fail(ErrorKind::kCompile, "the embedded compiler refused the source:\n{}", diagnostics);
}

}  // namespace

std::string run_cc1(const std::vector<std::string>& args, std::string_view source, std::span<const SourceFile> headers,
                    Emit emit, const std::string* precompiled) {
  std::string output, diagnostics;
  bool done = false;
  run_guarded([&] {
    std::vector<std::string> all = args;
    Files files = files_of(headers);
    // Copied, because clang needs a terminating zero, which a string_view may lack.
    add(*files, kSourcePath, llvm::MemoryBuffer::getMemBufferCopy({source.data(), source.size()}, kSourcePath));
    if (precompiled != nullptr) {
      add(*files, kPrecompiledPath, llvm::MemoryBuffer::getMemBuffer(*precompiled, kPrecompiledPath));
      all.insert(all.end(), {"-include-pch", kPrecompiledPath, "-fno-validate-pch"});
    }
    all.push_back(kSourcePath);
    std::unique_ptr<clang::CodeGenAction> action;
    if (emit == Emit::kObject) action = std::make_unique<clang::EmitObjAction>();
    if (emit == Emit::kAssembly) action = std::make_unique<clang::EmitAssemblyAction>();
    llvm::SmallString<0> bytes;
    done = run(all, files, *action, bytes, diagnostics);
    output.assign(bytes.begin(), bytes.end());
  });
  if (!done) refuse(diagnostics);
  return output;
}

std::string precompile_cc1(const std::vector<std::string>& args, std::string_view name,
                           std::span<const SourceFile> headers) {
  std::string output, diagnostics;
  bool done = false;
  run_guarded([&] {
    auto buffer = std::make_shared<clang::PCHBuffer>();
    PrecompileAction action(buffer);
    llvm::SmallString<0> unused;
    // Otherwise every compilation would instantiate the templates again that the header itself uses.
    std::vector<std::string> all = args;
    all.insert(all.end(), {"-fpch-instantiate-templates", std::string(name)});
    done = run(all, files_of(headers), action, unused, diagnostics) && buffer->IsComplete;
    output.assign(buffer->Data.begin(), buffer->Data.end());
  });
  if (!done) refuse(diagnostics);
  return output;
}

}  // namespace sardonyx
