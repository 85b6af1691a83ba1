// See reports.h.
#include "python/reports.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "api/code_report.h"
#include "api/pass_report.h"
#include "api/report.h"
#include "api/roofline.h"
#include "api/traffic.h"
#include "formats/open.h"
#include "fuse/passes.h"
#include "python/options.h"
#include "sardonyx/sardonyx.h"
#include "support/error.h"

namespace nb = nanobind;

namespace sardonyx::python {
namespace {

const Executor& program_of(const Model& m) {
  if (!m.executor())
    fail(ErrorKind::kUnsupported,
         "the model's code depends on the value of an input, so it is compiled when it runs; profile() shows its "
         "kernels");
  return *m.executor();
}

}  // namespace

nb::list kernels(const Model& m) {
  nb::list out;
  for (const StepReport& s : report(program_of(m).program()).steps)
    if (is_launch(s.kind)) out.append(nb::make_tuple(std::string(name(s.kind)), s.name, s.nodes));
  return out;
}

// The nodes of the model's file: name, operator, inputs, outputs.
nb::list nodes(const Model& m) {
  nb::list out;
  for (const model::Node& n : m.nodes().graph.nodes)
    out.append(nb::make_tuple(n.name, n.domain.empty() ? n.op_type : n.domain + "::" + n.op_type, n.inputs, n.outputs));
  return out;
}

// Reports the kernels of a model file or of bytes, compiled for a GPU that need not be present.
nb::list code_of(const std::string& path, const nb::bytes& data, const std::string& target, const nb::dict& options) {
  const Options o = options_of(options);
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data.data()), data.size());
  std::vector<KernelReport> kernels;
  {
    nb::gil_scoped_release release;
    kernels = code_report(*Model::compile_for(target, path.empty() ? parse_model(bytes) : open_model(path), o));
  }
  const auto or_none = [](const auto& x) { return x ? nb::cast(*x) : nb::none(); };
  nb::list out;
  for (const KernelReport& k : kernels) {
    nb::dict d;
    d["kernel"] = k.code.symbol;
    d["nodes"] = nb::tuple(nb::cast(k.nodes));
    d["vgprs"] = or_none(k.code.vgprs);
    d["agprs"] = or_none(k.code.agprs);
    d["sgprs"] = or_none(k.code.sgprs);
    d["vgpr_spills"] = or_none(k.code.vgpr_spills);
    d["sgpr_spills"] = or_none(k.code.sgpr_spills);
    d["scratch_bytes"] = or_none(k.code.scratch);
    d["lds_bytes"] = k.code.lds;
    d["waves_per_simd"] = k.waves > 0 ? nb::cast(k.waves) : nb::none();
    d["code_bytes"] = k.code.code_bytes;
    d["instructions"] = k.code.instructions;
    d["matrix_instructions"] = k.code.matrix_instructions;
    d["verdict"] = k.verdict;
    out.append(d);
  }
  return out;
}

// Estimates the launches of a model file, or of bytes (`path` is then the folder of external data), on a GPU that need
// not be present.
nb::list estimate_of(const std::string& path, const nb::bytes& data, const std::string& target, const nb::dict& options,
                     const std::map<std::string, std::int64_t>& dims) {
  const Options o = options_of(options);
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data.data()), data.size());
  std::shared_ptr<const Program> program;
  std::vector<KernelReport> kernels;
  std::vector<LaunchEstimate> launches;
  {
    nb::gil_scoped_release release;
    program = Model::compile_for(target, bytes.empty() ? open_model(path) : parse_model(bytes, path), o);
    kernels = code_report(*program);
    std::map<std::string, std::int64_t> open;  // the others are known since compiling
    for (const std::string& name : input_symbols(*program))
      if (const auto size = dims.find(name); size != dims.end()) open.insert(*size);
    launches = estimate(*program, kernels, open);
  }
  nb::list out;
  for (const LaunchEstimate& e : launches)
    out.append(
        nb::make_tuple(e.kernel, nb::tuple(nb::cast(e.nodes)), e.bytes, e.operations, e.seconds, e.tiling_seconds));
  return out;
}

// The graph after each pass, and remarks, of a model file or of bytes.
nb::tuple passes_of(const std::string& path, const nb::bytes& data, const std::string& target,
                    const nb::dict& options) {
  const Options o = options_of(options);
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data.data()), data.size());
  PassReport report;
  {
    nb::gil_scoped_release release;
    report = passes_for(target, path.empty() ? parse_model(bytes) : open_model(path), o);
  }
  nb::list passes, remarks;
  for (const PassSnapshot& s : report.passes) passes.append(nb::make_tuple(s.pass, s.nested, s.text));
  for (const Remark& r : report.remarks) {
    nb::dict values;
    for (const auto& [name, value] : r.values) values[nb::str(name.c_str(), name.size())] = value;
    remarks.append(nb::make_tuple(r.pass, r.node, r.reason, values));
  }
  return nb::make_tuple(passes, remarks);
}

std::map<std::string, std::size_t> memory(const Model& m, const std::map<std::string, std::int64_t>& dims) {
  const std::vector<std::string> symbols = m.symbols();
  for (const auto& [dim, size] : dims)
    if (std::find(symbols.begin(), symbols.end(), dim) == symbols.end())
      fail(ErrorKind::kInvalidArgument, "the inputs have no dim '{}'; their symbols are: {}", dim,
           fmt::join(symbols, ", "));
  const MemoryReport r = memory_report(program_of(m), dims);
  return {{"weights", r.weights},
          {"inputs", r.inputs},
          {"outputs", r.outputs},
          {"arena", r.arena},
          {"live", r.live},
          {"temporaries", r.temporaries},
          {"unplanned", static_cast<std::size_t>(r.unplanned)}};
}

// Launches of the main block: kind, name, nodes, bytes read, bytes written, operations.
nb::list traffic(const Model& m, const std::map<std::string, std::vector<std::int64_t>>& dims) {
  const Executor& e = program_of(m);
  std::vector<std::vector<std::int64_t>> ordered;
  for (const std::string& name : e.program().input_names) {
    const auto found = dims.find(name);
    if (found == dims.end()) fail(ErrorKind::kInvalidArgument, "input '{}' has no shape", name);
    ordered.push_back(found->second);
  }
  const Traffic t = traffic_of(e.program(), e.bind(ordered));
  nb::list out;
  std::size_t at = 0;
  for (const StepReport& s : report(e.program()).steps) {
    if (s.depth > 0) continue;
    const StepTraffic& step = t.steps.at(at++);
    if (is_launch(s.kind))
      out.append(nb::make_tuple(std::string(name(s.kind)), s.name, s.nodes, step.bytes_read, step.bytes_written,
                                step.operations));
  }
  return out;
}

}  // namespace sardonyx::python
