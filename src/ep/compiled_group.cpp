// Compiled groups, shared; see compiled_group.h.
#include "ep/compiled_group.h"

#include <array>
#include <filesystem>

#include "compile/cache.h"
#include "custom/operators.h"
#include "ep/process_wide.h"
#include "import/calibration.h"
#include "import/node_source.h"
#include "options/compile_options.h"
#include "tune/database.h"

namespace sardonyx::ep {
namespace {

struct Shared {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<CompiledGroup>> groups;
};

}  // namespace

ModelOptions model_options(const ProviderOptions& options, const ProviderDevice& device) {
  ModelOptions m = options.compile;
  m.device = device.info().name;
  if (options.exhaustive_tune && !m.cache_dir.empty() && !device.is_host()) {
    m.tuning = "exhaustive";
    m.tuning_database = m.cache_dir / kCachedTimes;
  } else if (options.use_tuned && !m.cache_dir.empty() && !device.is_host()) {
    const std::filesystem::path times = m.cache_dir / kCachedTimes;
    std::error_code ignored;
    if (std::filesystem::exists(times, ignored)) m.tuning_database = times;  // else nothing was timed yet
  }
  if (options.force_recompile) m.cache_dir.clear();
  return m;
}

std::string group_settings(const Options& options) {
  std::string settings = settings_text(options);
  if (!options.calibration_table.empty())
    for (const auto& [name, largest] : read_calibration(options.calibration_table).largest)
      settings += fmt::format(" {}\n{}", name, largest);
  return settings + known_custom_operators(options.custom_operators)->fingerprint();
}

std::shared_ptr<CompiledGroup> compile_group(GroupModel group, const ProviderOptions& options,
                                             const std::shared_ptr<ProviderDevice>& device) {
  const ModelOptions m = model_options(options, *device);
  const std::string settings =
      fmt::format("{} {} {}", device->id(), fmt::ptr(m.device_memory_budget.get()), group_settings(m));
  const std::array<std::string_view, 3> parts = {"provider group", settings, group.key};
  const std::string key = cache_key(parts).hex();
  Shared& shared = process_wide<Shared>();
  if (!options.force_recompile) {
    const std::lock_guard lock(shared.mutex);
    if (auto known = shared.groups[key].lock()) return known;
  }
  auto out = std::make_shared<CompiledGroup>();
  out->device = device;
  for (const model::ValueInfo& v : group.model.graph.outputs) out->outputs.push_back(v.name);
  out->model = std::make_unique<Model>(std::make_unique<NodeSource>(std::move(group.model)), m);
  for (const TensorInfo& t : out->model->inputs()) {
    out->inputs.push_back(t.name);
    out->input_types.push_back(t.dtype);
  }
  const std::lock_guard lock(shared.mutex);
  std::erase_if(shared.groups, [](const auto& g) { return g.second.expired(); });
  std::weak_ptr<CompiledGroup>& place = shared.groups[key];
  if (auto known = place.lock(); known && !options.force_recompile)
    return known;  // another session compiled it meanwhile
  place = out;
  return out;
}

std::size_t groups_in_use() {
  Shared& shared = process_wide<Shared>();
  const std::lock_guard lock(shared.mutex);
  std::size_t n = 0;
  for (const auto& [key, g] : shared.groups) n += g.expired() ? 0 : 1;
  return n;
}

}  // namespace sardonyx::ep
