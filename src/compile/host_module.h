// Host objects made executable in this process.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sardonyx {

/// Links host objects of compile() into memory. The code lives as long as the module.
class HostModule {
 public:
  /// Links all of `objects` together: they may refer to each other's extern "C" symbols, and of the process only to the
  /// C library's memory functions and libm (host_runtime.h). Throws Error(kCompile) naming unresolved or doubly defined
  /// symbols, global constructors, or an object for another architecture.
  explicit HostModule(std::span<const std::string> objects);
  HostModule(HostModule&&) noexcept;
  HostModule& operator=(HostModule&&) noexcept;
  ~HostModule();

  /// Address of the function or variable named `symbol` (extern "C"); null when the objects define none. Thread-safe.
  void* find(std::string_view symbol) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sardonyx
