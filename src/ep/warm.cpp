// Warming up and dumping groups; see warm.h.
#include "ep/warm.h"

#include <cstring>
#include <fstream>

#include "api/report.h"

namespace sardonyx::ep {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

void warm_up(const CompiledGroup& group, const std::vector<std::int64_t>& batches, const Log& log) {
  if (batches.empty()) return;
  std::string batch;
  for (const TensorInfo& t : group.model->inputs())
    if (batch.empty() && !t.shape.empty() && !is_number(t.shape.front())) batch = t.shape.front();
  if (batch.empty()) return;
  for (const std::int64_t n : batches) {
    std::map<std::string, HostTensor> inputs;
    try {
      for (const TensorInfo& t : group.model->inputs()) {
        std::vector<std::int64_t> dims;
        for (const std::string& d : t.shape) {
          if (d != batch && !is_number(d))
            fail(ErrorKind::kUnsupported, "the dim '{}' of '{}' has no size before the first run", d, t.name);
          dims.push_back(d == batch ? n : std::stoll(d));
        }
        HostTensor zeros = Tensor::allocate(t.dtype, dims);
        std::memset(zeros.data, 0, zeros.bytes());
        inputs[t.name] = std::move(zeros);
      }
      group.model->run(inputs);
    } catch (const Error& e) {
      log.info("batch size {} is not warmed up: {}", n, e.what());
    }
  }
}

void dump(const CompiledGroup& group, const std::string& name, const std::filesystem::path& folder, const Log& log) {
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

}  // namespace sardonyx::ep
