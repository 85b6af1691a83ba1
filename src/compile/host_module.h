// Makes host objects executable in this process.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sardonyx {

/// Links host objects of compile() into memory. The code lives as long as the module.
class HostModule {
 public:
  /// Links all of `objects` together. They may use each other's extern "C" symbols and, of the process, only the C
  /// library's memory functions and libm (host_runtime.h). Throws Error(kCompile) that names unresolved or doubly
  /// defined symbols, global constructors, or an object for another architecture.
  explicit HostModule(std::span<const std::string> objects);
  HostModule(HostModule&&) noexcept;
  HostModule& operator=(HostModule&&) noexcept;
  ~HostModule();

  /// Address of the function or variable `symbol` (extern "C"); null if no object defines it. Thread-safe.
  void* find(std::string_view symbol) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sardonyx
