// Files of compiled groups at a path that the application gives: what the MIGraphX provider's options for saving and
// loading compiled models ask for.
//
//   "SDXGRP01"  key: 64 characters; zeros up to 128 bytes
//   container   ep_context.h
//
// As in EPContext models, machine code is checked for damage and otherwise trusted.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include "ep/compiled_group.h"

namespace sardonyx::ep {

/// What a file of this group must say: a hash of the model, its weights and the options that the program depends on.
std::string group_file_key(const GroupModel& group, const ProviderOptions& options);

/// The file of a session's k-th group: `path` itself, `path`.1, and so on; in a directory, a name made of the key.
std::filesystem::path group_file(const std::filesystem::path& path, std::size_t k, const std::string& key);

/// Writes the group, in one step: readers see the old file or the new one. Throws Error: kUnsupported for a group that
/// is compiled only when it runs; kIo.
void save_group(const CompiledGroup& group, const std::string& key, const std::filesystem::path& file);

/// Throws Error: kIo if there is no file; kInvalidArgument if it is for another model or other options; as
/// read_context() if it is damaged, or for other devices.
std::shared_ptr<CompiledGroup> load_group(const std::filesystem::path& file, const std::string& key,
                                          const ProviderOptions& options,
                                          const std::shared_ptr<ProviderDevice>& device);

}  // namespace sardonyx::ep
