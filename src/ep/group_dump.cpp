#include "ep/group_dump.h"

#include <fstream>

#include "api/report.h"
#include "onnx/write.h"

namespace sardonyx::ep {

void dump_group(const CompiledGroup& group, const std::string& name, const std::filesystem::path& folder,
                const Log& log) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  const std::filesystem::path path = folder / (name + ".txt");
  std::ofstream out(path);
  out << "device " << group.model->device_name() << "\n";
  for (const TensorInfo& t : group.model->inputs())
    out << fmt::format("input {} {} [{}]\n", t.name, sardonyx::name(t.dtype), fmt::join(t.shape, ", "));
  for (const TensorInfo& t : group.model->outputs())
    out << fmt::format("output {} {} [{}]\n", t.name, sardonyx::name(t.dtype), fmt::join(t.shape, ", "));
  if (const Executor* e = group.model->executor()) {
    const ProgramReport r = report(e->program());
    out << fmt::format("{} kernels a run, {} bytes of code, {} bytes of weights\n", r.kernels_per_run, r.code_bytes,
                       e->constant_bytes());
    for (const StepReport& s : r.steps)
      out << fmt::format("{:{}}{} {}: {}\n", "", 2 * s.depth, sardonyx::name(s.kind), s.name, fmt::join(s.nodes, ", "));
  } else {
    out << "compiled at the first run, for each value of an input\n";
  }
  out.close();
  if (!out) log.warn("{} can't be written", path.string());
}

void dump_model(const model::Model& model, const std::string& name, const std::filesystem::path& folder,
                const Log& log) {
  const std::filesystem::path path = folder / (name + ".onnx");
  try {
    const std::string bytes = onnx::serialize(model);
    std::ofstream out(path, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) log.warn("{} can't be written", path.string());
  } catch (const Error& e) {
    log.warn("{} can't be written: {}", path.string(), e.what());
  }
}

}  // namespace sardonyx::ep
