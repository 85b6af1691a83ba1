// sardonyx compile: into the cache or a program file, for the device or for GPUs that need not be present.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "api/code_report.h"
#include "api/report.h"
#include "api/roofline.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/model_loading.h"
#include "cli/terminal.h"
#include "formats/open.h"
#include "program/program_file.h"
#include "target/chip.h"
#include "tensor_files/tensor_files.h"

namespace sardonyx::cli {
namespace {

std::string number(const auto& optional) { return optional ? std::to_string(*optional) : "-"; }

void print_code(const std::vector<KernelReport>& kernels) {
  Table table({"kernel", ">VGPRs", ">AGPRs", ">SGPRs", ">spills", ">scratch", ">LDS", ">waves", ">code", ">matrix",
               "verdict", "nodes"});
  for (const KernelReport& k : kernels) {
    const KernelCode& c = k.code;
    const auto spills = c.vgpr_spills ? std::optional(*c.vgpr_spills + *c.sgpr_spills) : std::nullopt;
    table.add({cut(c.symbol, 24), number(c.vgprs), number(c.agprs), number(c.sgprs), number(spills), number(c.scratch),
               std::to_string(c.lds), k.waves > 0 ? std::to_string(k.waves) : "-", std::to_string(c.code_bytes),
               std::to_string(c.matrix_instructions), k.verdict,
               cut(printable(fmt::format("{}", fmt::join(k.nodes, ", "))), 60)});
  }
  table.print();
}

nlohmann::ordered_json code_json(const std::vector<KernelReport>& kernels) {
  const auto or_null = [](const auto& x) { return x ? nlohmann::ordered_json(*x) : nlohmann::ordered_json(); };
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const KernelReport& k : kernels)
    all.push_back({{"kernel", k.code.symbol},
                   {"nodes", k.nodes},
                   {"vgprs", or_null(k.code.vgprs)},
                   {"agprs", or_null(k.code.agprs)},
                   {"sgprs", or_null(k.code.sgprs)},
                   {"vgpr_spills", or_null(k.code.vgpr_spills)},
                   {"sgpr_spills", or_null(k.code.sgpr_spills)},
                   {"scratch_bytes", or_null(k.code.scratch)},
                   {"lds_bytes", k.code.lds},
                   {"waves_per_simd", k.waves > 0 ? nlohmann::ordered_json(k.waves) : nlohmann::ordered_json()},
                   {"code_bytes", k.code.code_bytes},
                   {"instructions", k.code.instructions},
                   {"matrix_instructions", k.code.matrix_instructions},
                   {"verdict", k.verdict}});
  return all;
}

// Prints what each launch moves and computes for given sizes, and its time at the chip's roofline.
void print_estimate(const std::vector<LaunchEstimate>& launches, const Chip& chip) {
  Table table({"launch", ">bytes", ">operations", ">a byte", ">at best", "bound by", ">workgroups", ">matrix", ">VGPRs",
               ">LDS", ">waves", "nodes"});
  double seconds = 0, bytes = 0, operations = 0;
  for (const LaunchEstimate& e : launches) {
    seconds += e.seconds;
    bytes += e.bytes;
    operations += e.operations;
    table.add({cut(e.kernel, 24), human_bytes(e.bytes),
               e.operations > 0 ? fmt::format("{:.3g} G", e.operations / 1e9) : "-",
               e.operations > 0 && e.bytes > 0 ? fmt::format("{:.0f}", e.operations / e.bytes) : "-",
               fmt::format("{:.2f} us", e.seconds * 1e6), e.by_memory ? "memory" : "arithmetic",
               e.workgroups > 0 ? std::to_string(e.workgroups) : "-", fmt::format("{:.1f} %", 100 * e.matrix_share),
               number(e.code->code.vgprs), std::to_string(e.code->code.lds),
               e.code->waves > 0 ? std::to_string(e.code->waves) : "-",
               cut(printable(fmt::format("{}", fmt::join(e.nodes, ", "))), 60)});
  }
  table.print();
  fmt::print("{} launches, {}, {:.3g} G operations: {} at best on {} ({} units, {:.3g} TB/s)\n\n", launches.size(),
             human_bytes(bytes), operations / 1e9, human_seconds(seconds), chip.product().name, chip.product().units,
             chip.product().gb_per_second / 1e3);
}

nlohmann::ordered_json estimate_json(const std::vector<LaunchEstimate>& launches) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const LaunchEstimate& e : launches)
    all.push_back({{"kernel", e.kernel},
                   {"nodes", e.nodes},
                   {"bytes", e.bytes},
                   {"operations", e.operations},
                   {"seconds", e.seconds},
                   {"bound", e.by_memory ? "memory" : "arithmetic"},
                   {"workgroups", e.workgroups},
                   {"matrix_share", e.matrix_share}});
  return all;
}

// Those of the given sizes that are still open in the program.
std::optional<std::map<std::string, std::int64_t>> open_dims(const Program& p, const Arguments& arguments) {
  std::map<std::string, std::int64_t> dims;
  for (const std::string& name : input_symbols(p)) {
    const auto size = arguments.model.dims.find(name);
    if (size == arguments.model.dims.end()) return std::nullopt;
    dims[name] = size->second;
  }
  return dims;
}

void compile_for_cards(const Arguments& arguments) {
  nlohmann::ordered_json all;
  std::vector<std::shared_ptr<const Program>> programs;
  for (const std::string& arch : arguments.compile_arch) {
    const auto start = std::chrono::steady_clock::now();
    if (std::any_of(programs.begin(), programs.end(), [&](const auto& p) { return p->target == arch; })) continue;
    const auto program = Model::compile_for(arch, open_model(arguments.model.file), arguments.model.compile);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    programs.push_back(program);
    const ProgramReport r = report(*program);
    all.push_back({{"model", arguments.model.file.string()},
                   {"target", arch},
                   {"seconds", seconds},
                   {"kernels_per_run", r.kernels_per_run},
                   {"kernels", program->kernels.size()},
                   {"code_bytes", r.code_bytes}});
    std::vector<KernelReport> code;
    if (arguments.compile_report) all.back()["code"] = code_json(code = code_report(*program));
    if (arguments.compile_json != "-")
      fmt::print("{} kernels ({} different, {} of code) for {} in {}\n", r.kernels_per_run, program->kernels.size(),
                 human_bytes(static_cast<double>(r.code_bytes)), arch, human_seconds(seconds));
    if (arguments.compile_json != "-" && !code.empty()) print_code(code);
    const Chip* chip = find_chip(arch);
    if (!arguments.compile_report || !chip) continue;
    const auto dims = open_dims(*program, arguments);
    if (dims) {
      const std::vector<LaunchEstimate> launches = estimate(*program, code, *dims);
      all.back()["launches"] = estimate_json(launches);
      if (arguments.compile_json != "-") print_estimate(launches, *chip);
    } else if (arguments.compile_json != "-") {
      fmt::print("With --dim for each of {} also: bytes, operations and the roofline of each launch\n",
                 fmt::join(input_symbols(*program), ", "));
    }
  }
  if (!arguments.compile_output.empty()) save_programs(programs, arguments.compile_output);
  if (!arguments.compile_json.empty()) write_text(arguments.compile_json, all.dump(2) + "\n");
}

}  // namespace

void compile_command(const Arguments& arguments) {
  if (arguments.compile_report && arguments.compile_arch.empty())
    fail(ErrorKind::kInvalidArgument, "--report is for GPU kernels: name the chips with --arch");
  if (arguments.model.compile.cache_dir.empty() && arguments.compile_output.empty() && !arguments.compile_report)
    fail(
        ErrorKind::kInvalidArgument,
        "compiled code is kept in a cache, and there is none: name a folder with --cache-dir or SARDONYX_CACHE_DIR, or "
        "a file with --output");
  if (is_program_file(arguments.model.file))
    fail(ErrorKind::kInvalidArgument, "{} is compiled already", arguments.model.file.string());
  if (!arguments.compile_arch.empty()) return compile_for_cards(arguments);
  Arguments ahead = arguments;
  ahead.model.compile.compile_ahead = true;
  Loaded loaded = load_model(ahead);
  std::shared_ptr<Executor> specific;
  const Executor* e = loaded.model->executor();
  if (!e) {  // code depends on the value or rank of an input
    specific = program_for(*loaded.model, inputs_for(*loaded.model, arguments), arguments.quiet);
    e = specific.get();
  }
  const ProgramReport r = report(e->program());
  if (!arguments.compile_output.empty()) loaded.model->save(arguments.compile_output);
  const CacheStats c = loaded.model->cache().stats();
  if (!c.warning.empty() && !arguments.model.compile.cache_dir.empty())
    fail(ErrorKind::kIo, "compiled, but not kept: {}", c.warning);
  if (!arguments.compile_json.empty()) {
    nlohmann::ordered_json j;
    j["model"] = arguments.model.file.string();
    j["target"] = e->program().target;
    j["seconds"] = loaded.seconds;
    for (const auto& s : loaded.stages) j["stages"][s.name] = s.seconds;
    j["kernels_per_run"] = r.kernels_per_run;
    j["kernels"] = e->program().kernels.size();
    j["code_bytes"] = r.code_bytes;
    if (!arguments.compile_output.empty()) j["output"] = arguments.compile_output;
    j["cache"] = {{"directory", arguments.model.compile.cache_dir.string()}, {"hits", c.hits}, {"misses", c.misses}};
    write_text(arguments.compile_json, j.dump(2) + "\n");
    if (arguments.compile_json == "-") return;
  }
  fmt::print("{} kernels ({} different, {} of code) for {} in {}: {} objects from the cache, {} compiled\n",
             r.kernels_per_run, e->program().kernels.size(), human_bytes(static_cast<double>(r.code_bytes)),
             e->program().target.substr(0, e->program().target.find(' ', e->program().target.find(' ') + 1)),
             human_seconds(loaded.seconds), c.hits, c.misses);
}

}  // namespace sardonyx::cli
