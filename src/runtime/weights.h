// Constants on devices with memory of their own. Programs of a process share constants of equal content. `device` is
// Backend::device().
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "program/program.h"

namespace sardonyx {

/// The constants of a program on a device, including those that it computes.
struct DeviceConstants {
  std::shared_ptr<const Program> program;
  std::vector<const void*> addresses;               ///< by buffer; null where there is none
  std::vector<std::shared_ptr<const void>> owners;  ///< owners of these addresses
  std::size_t bytes = 0;
};

constexpr std::size_t kLargeConstant = std::size_t{64} << 10;  ///< bytes; smaller constants share a block

/// A large constant on a device, and its source in host memory.
struct UploadedConstant {
  Data data;
  std::shared_ptr<void> memory;
};
/// A constant with this content that a program has on this device, or null.
std::shared_ptr<const UploadedConstant> find_upload(const void* device, const Data& data);
/// Registers it for find_upload() while it is alive. Its upload must be finished.
void share_upload(const void* device, const std::shared_ptr<const UploadedConstant>& constant);

/// A large constant that a launch has computed from uploaded ones.
struct ComputedConstant {
  std::string launch;                               ///< its kernel and sizes, and the addresses of what it reads
  std::vector<std::shared_ptr<const void>> inputs;  ///< keeps these addresses
  std::shared_ptr<void> memory;
};
/// What an equal launch has computed for a program on this device, or null.
std::shared_ptr<const ComputedConstant> find_computed(const void* device, const std::string& launch);
/// Registers it for find_computed() while it is alive. Its launch must be finished.
void share_computed(const void* device, const std::shared_ptr<const ComputedConstant>& constant);

/// The constants of an equal program that is loaded on this device, or null.
std::shared_ptr<const DeviceConstants> find_constants(const void* device, const Program& program);
/// Registers them for find_constants() while they are alive.
void share_constants(const void* device, const std::shared_ptr<const DeviceConstants>& constants);

}  // namespace sardonyx
