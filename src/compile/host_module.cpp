// HostModule: ORC and JITLink. The only file that includes their headers.
#include "compile/host_module.h"

#include <llvm/ExecutionEngine/Orc/AbsoluteSymbols.h>
#include <llvm/ExecutionEngine/Orc/ObjectFileInterface.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h>
#include <llvm/Object/ELFObjectFile.h>

#include "compile/host_runtime.h"
#include "compile/llvm_process.h"
#include "support/error.h"

namespace sardonyx {
namespace {

namespace orc = llvm::orc;

[[noreturn]] void refuse(std::string_view what) {
  fail(ErrorKind::kCompile,
       "compiled host code can't be linked: {}. Code may call memcpy, memmove, memset, memcmp, libm and its own "
       "functions",
       what);
}

void require(llvm::Error error) {
  if (error) refuse(llvm::toString(std::move(error)));
}

template <typename T>
T require(llvm::Expected<T> value) {
  if (!value) refuse(llvm::toString(value.takeError()));
  return std::move(*value);
}

/// Throws unless `buffer` is an ELF object for this machine and without initialisers, which nobody would run.
void check_object(llvm::MemoryBufferRef buffer, const llvm::Triple& machine) {
  auto object = require(llvm::object::ObjectFile::createELFObjectFile(buffer));
  if (object->getArch() != machine.getArch())
    refuse("it is for " + llvm::Triple::getArchTypeName(object->getArch()).str() + ", and this machine is " +
           machine.getArchName().str());
  for (const auto& section : object->sections()) {
    const llvm::StringRef name = require(section.getName());
    if (name.starts_with(".init_array") || name.starts_with(".ctors"))
      refuse("it has a global variable with a constructor; make the initialiser constexpr");
  }
}

}  // namespace

struct HostModule::Impl {
  std::unique_ptr<orc::ExecutionSession> session;
  std::unique_ptr<orc::ObjectLinkingLayer> layer;
  llvm::StringMap<void*> symbols;

  ~Impl() {
    layer.reset();
    if (session) llvm::consumeError(session->endSession());
  }
};

HostModule::HostModule(std::span<const std::string> objects) : impl_(std::make_unique<Impl>()) {
  initialize_llvm();
  auto control =
      require(orc::SelfExecutorProcessControl::Create(nullptr, std::make_unique<orc::InPlaceTaskDispatcher>()));
  impl_->session = std::make_unique<orc::ExecutionSession>(std::move(control));
  orc::ExecutionSession& session = *impl_->session;
  std::string reported;  // JITLink's own words; what lookup returns then only says that something failed
  session.setErrorReporter([&reported](llvm::Error e) { reported += llvm::toString(std::move(e)) + "; "; });
  impl_->layer = std::make_unique<orc::ObjectLinkingLayer>(session);

  orc::JITDylib& runtime = session.createBareJITDylib("runtime");
  orc::SymbolMap functions;
  for (const RuntimeSymbol& s : host_runtime())
    functions[session.intern(s.name)] = {orc::ExecutorAddr::fromPtr(s.address),
                                         llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  require(runtime.define(orc::absoluteSymbols(std::move(functions))));

  orc::JITDylib& code = session.createBareJITDylib("code");
  code.addToLinkOrder(runtime);
  orc::SymbolLookupSet wanted;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    auto buffer = llvm::MemoryBuffer::getMemBufferCopy(objects[i], "object " + std::to_string(i));
    check_object(*buffer, session.getTargetTriple());
    auto interface = require(orc::getObjectFileInterface(session, *buffer));
    for (const auto& [name, flags] : interface.SymbolFlags) wanted.add(name);
    require(impl_->layer->add(code, std::move(buffer), std::move(interface)));
  }
  auto found = session.lookup({{&code, orc::JITDylibLookupFlags::MatchAllSymbols}}, std::move(wanted));
  if (!found) refuse(reported + llvm::toString(found.takeError()));
  for (const auto& [name, definition] : *found) impl_->symbols[*name] = definition.getAddress().toPtr<void*>();
  session.setErrorReporter([](llvm::Error e) { llvm::consumeError(std::move(e)); });
}

HostModule::HostModule(HostModule&&) noexcept = default;
HostModule& HostModule::operator=(HostModule&&) noexcept = default;
HostModule::~HostModule() = default;

void* HostModule::find(std::string_view symbol) const {
  const auto it = impl_->symbols.find({symbol.data(), symbol.size()});
  return it == impl_->symbols.end() ? nullptr : it->second;
}

}  // namespace sardonyx
