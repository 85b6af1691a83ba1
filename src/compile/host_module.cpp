// HostModule: links with the linker for this machine.
#include "compile/host_module.h"

#include <unordered_map>

#include "compile/backend.h"
#include "compile/elf_link.h"
#include "compile/host_runtime.h"

namespace sardonyx {

struct HostModule::Impl {
  std::unordered_map<std::string, void*> symbols;
  std::shared_ptr<void> memory;
};

HostModule::HostModule(std::span<const std::string> objects) : impl_(std::make_unique<Impl>()) {
#if defined(__x86_64__)
  impl_->memory = elf_link(objects, host_runtime(), impl_->symbols);
#else
  impl_->memory = compiler_backend().jit_link(objects, host_runtime(), impl_->symbols);
#endif
}

HostModule::HostModule(HostModule&&) noexcept = default;
HostModule& HostModule::operator=(HostModule&&) noexcept = default;
HostModule::~HostModule() = default;

void* HostModule::find(std::string_view symbol) const {
  const auto it = impl_->symbols.find(std::string(symbol));
  return it == impl_->symbols.end() ? nullptr : it->second;
}

}  // namespace sardonyx
