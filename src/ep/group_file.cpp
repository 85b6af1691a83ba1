// Files of compiled groups; see group_file.h.
#include "ep/group_file.h"

#include <unistd.h>

#include <array>
#include <fstream>

#include "compile/cache.h"
#include "ep/ep_context.h"
#include "options/compile_options.h"
#include "support/mapped_file.h"

namespace sardonyx::ep {
namespace {

constexpr std::string_view kMagic = "SDXGRP01";
constexpr std::size_t kKeyLength = 64;
constexpr std::size_t kHeader = 128;  // the container begins at a multiple of 64

}  // namespace

std::string group_file_key(const GroupModel& group, const ProviderOptions& options) {
  // Options that apply when a program is loaded (threads, graphs) may differ.
  Options o = options.compile;
  const Options defaults;
  for (const OptionInfo& row : kOptions)
    if (row.at_load && option_text(o, row) != option_text(defaults, row))
      set_option(o, row, row.name, option_text(defaults, row));
  const std::string settings = group_settings(o);
  const std::array<std::string_view, 3> parts = {"group file", settings, group.key};
  std::string key = cache_key(parts).hex();
  key.resize(kKeyLength, '0');
  return key;
}

std::filesystem::path group_file(const std::filesystem::path& path, std::size_t k, const std::string& key) {
  if (std::error_code none; std::filesystem::is_directory(path, none)) return path / (key.substr(0, 16) + ".sdxgroup");
  return k == 0 ? path : std::filesystem::path(fmt::format("{}.{}", path.string(), k));
}

void save_group(const CompiledGroup& group, const std::string& key, const std::filesystem::path& file) {
  const Executor* e = group.model->executor();
  if (!e)
    fail(ErrorKind::kUnsupported,
         "{}: a group depends on an input's value, so it is compiled when it runs and can't be saved", file.string());
  std::string out(kMagic);
  out += key;
  out.resize(kHeader);
  out += write_context({group.inputs, group.outputs}, {e->shared_program()});
  const std::filesystem::path partial = fmt::format("{}.{}.partial", file.string(), ::getpid());
  std::ofstream stream(partial, std::ios::binary);
  stream.write(out.data(), static_cast<std::streamsize>(out.size()));
  stream.close();
  std::error_code error;
  if (stream) std::filesystem::rename(partial, file, error);
  if (!stream || error) {
    std::filesystem::remove(partial, error);
    fail(ErrorKind::kIo, "cannot write the compiled model to {}; save_compiled_path must be in a writable directory",
         file.string());
  }
}

std::shared_ptr<CompiledGroup> load_group(const std::filesystem::path& file, const std::string& key,
                                          const ProviderOptions& options,
                                          const std::shared_ptr<ProviderDevice>& device) {
  const auto map = std::make_shared<const MappedFile>(file);
  const auto text = [&](std::size_t at, std::size_t n) {
    return std::string_view(reinterpret_cast<const char*>(map->data()) + at, n);
  };
  if (map->size() < kHeader || text(0, kMagic.size()) != kMagic)
    fail(ErrorKind::kInvalidModel,
         "{} is not a compiled model of this version of Sardonyx (MIGraphX's MXR files hold its own kernels); save it "
         "again",
         file.string());
  if (text(kMagic.size(), kKeyLength) != key)
    fail(ErrorKind::kInvalidArgument, "{} was saved from another model, or with other options; save it again",
         file.string());
  ContextNames names;
  return read_context({map->data() + kHeader, map->size() - kHeader}, map, options, device, names);
}

}  // namespace sardonyx::ep
