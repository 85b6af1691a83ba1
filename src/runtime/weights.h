// Constants on devices with memory of their own. Programs of one process share those of equal content; `device` is
// Backend::device().
#pragma once
#include <memory>
#include <vector>

#include "program/program.h"

namespace sardonyx {

/// The constants of a program on a device, those that it computes included.
struct DeviceConstants {
  std::shared_ptr<const Program> program;
  std::vector<const void*> addresses;               ///< by buffer; null where there is none
  std::vector<std::shared_ptr<const void>> owners;  ///< of them
  std::size_t bytes = 0;
};

constexpr std::size_t kLargeConstant = std::size_t{64} << 10;  ///< bytes; smaller ones share a block

/// A large constant on a device, and what it was uploaded from.
struct UploadedConstant {
  Data data;
  std::shared_ptr<void> memory;
};
/// One of this content that some program has on this device, or null.
std::shared_ptr<const UploadedConstant> find_upload(const void* device, const Data& data);
/// Makes it known to find_upload() for as long as somebody keeps it. Its upload must be done.
void share_upload(const void* device, const std::shared_ptr<const UploadedConstant>& constant);

/// The constants of an equal program that is loaded on this device, or null.
std::shared_ptr<const DeviceConstants> find_constants(const void* device, const Program& program);
/// Makes them known to find_constants() for as long as somebody keeps them.
void share_constants(const void* device, const std::shared_ptr<const DeviceConstants>& constants);

}  // namespace sardonyx
