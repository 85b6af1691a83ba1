// ORC and JITLink. The only file that includes their headers.
#include "compile/llvm/jit_link.h"

#include <llvm/ExecutionEngine/Orc/AbsoluteSymbols.h>
#include <llvm/ExecutionEngine/Orc/ObjectFileInterface.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h>
#include <llvm/Object/ELFObjectFile.h>

#include <set>

#include "compile/llvm/llvm_process.h"
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

/// Throws unless `buffer` is an ELF object for this machine without initialisers, which would never be run.
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

namespace {

/// Names that the objects use but do not define and that begin with `prefix`.
std::set<std::string> undefined_names(std::span<const std::string> objects, llvm::StringRef prefix) {
  std::set<std::string> names;
  for (const std::string& o : objects) {
    auto object = require(llvm::object::ObjectFile::createELFObjectFile(llvm::MemoryBufferRef(o, "object")));
    for (const auto& symbol : object->symbols()) {
      const llvm::StringRef name = require(symbol.getName());
      if (name.starts_with(prefix) && (require(symbol.getFlags()) & llvm::object::SymbolRef::SF_Undefined) != 0)
        names.insert(name.str());
    }
  }
  return names;
}

struct Linked {
  std::unique_ptr<orc::ExecutionSession> session;
  std::unique_ptr<orc::ObjectLinkingLayer> layer;

  ~Linked() {
    layer.reset();
    if (session) llvm::consumeError(session->endSession());
  }
};

}  // namespace

std::shared_ptr<void> jit_link(std::span<const std::string> objects, std::span<const RuntimeSymbol> host_runtime,
                               std::unordered_map<std::string, void*>& symbols) {
  initialize_llvm();
  auto linked = std::make_shared<Linked>();
  auto control =
      require(orc::SelfExecutorProcessControl::Create(nullptr, std::make_unique<orc::InPlaceTaskDispatcher>()));
  linked->session = std::make_unique<orc::ExecutionSession>(std::move(control));
  orc::ExecutionSession& session = *linked->session;
  std::string reported;  // JITLink's own message; the error of lookup only says that something failed
  session.setErrorReporter([&reported](llvm::Error e) { reported += llvm::toString(std::move(e)) + "; "; });
  linked->layer = std::make_unique<orc::ObjectLinkingLayer>(session);

  orc::JITDylib& runtime = session.createBareJITDylib("runtime");
  orc::SymbolMap functions;
  for (const RuntimeSymbol& s : host_runtime) {
    const orc::ExecutorSymbolDef definition{orc::ExecutorAddr::fromPtr(s.address),
                                            llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    if (!llvm::StringRef(s.name).ends_with("."))
      functions[session.intern(s.name)] = definition;
    else
      for (const std::string& name : undefined_names(objects, s.name)) functions[session.intern(name)] = definition;
  }
  require(runtime.define(orc::absoluteSymbols(std::move(functions))));

  orc::JITDylib& code = session.createBareJITDylib("code");
  code.addToLinkOrder(runtime);
  orc::SymbolLookupSet wanted;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    auto buffer = llvm::MemoryBuffer::getMemBufferCopy(objects[i], "object " + std::to_string(i));
    check_object(*buffer, session.getTargetTriple());
    auto interface = require(orc::getObjectFileInterface(session, *buffer));
    for (const auto& [name, flags] : interface.SymbolFlags) wanted.add(name);
    require(linked->layer->add(code, std::move(buffer), std::move(interface)));
  }
  auto found = session.lookup({{&code, orc::JITDylibLookupFlags::MatchAllSymbols}}, std::move(wanted));
  if (!found) refuse(reported + llvm::toString(found.takeError()));
  for (const auto& [name, definition] : *found) symbols[(*name).str()] = definition.getAddress().toPtr<void*>();
  session.setErrorReporter([](llvm::Error e) { llvm::consumeError(std::move(e)); });
  return linked;
}

}  // namespace sardonyx
