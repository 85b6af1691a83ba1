// From a schedule to steps over numbered buffers, and from kernels to machine code. The steps of each kind of device
// are made by the implementations of lowering.h.
#include "lower/build.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "compile/backend.h"
#include "compile/cache.h"
#include "compile/compiler.h"
#include "compile/kernel_names.h"
#include "fuse/schedule.h"
#include "kernel_sources.h"
#include "lower/custom_lowering.h"
#include "lower/drop_candidates.h"
#include "lower/lowering.h"
#include "lower/node_names.h"
#include "lower/program_builder.h"
#include "lower/units.h"
#include "support/background.h"
#include "support/error.h"
#include "support/tasks.h"

namespace sardonyx {
namespace {

std::vector<SymbolStep> symbol_steps(const std::vector<SymbolBinding>& list) {
  std::vector<SymbolStep> out;
  for (const SymbolBinding& b : list) out.push_back({static_cast<int>(b.symbol->i), b.value});
  return out;
}

/// Lowers a graph and its nested graphs.
class GraphLowering {
 public:
  GraphLowering(ProgramBuilder& builder, const Lowering& device) : b_(builder), device_(device) {}

  void lower(const Schedule& s, Block& block) {
    block.inputs = b_.refs(s.graph->inputs);
    const bool outer = b_.in_init;
    b_.in_init = true;
    std::vector<ProgramStep> init = lower(s.init);  // steps of constants only, in nested graphs too: run once
    b_.in_init = outer;
    for (const Step& step : s.init) b_.written_by_init(step);
    std::vector<ProgramStep>& all = b_.program().init.steps;
    all.insert(all.end(), std::make_move_iterator(init.begin()), std::make_move_iterator(init.end()));
    block.steps = lower(s.steps);
    block.outputs = b_.refs(s.graph->outputs);
  }

 private:
  std::vector<ProgramStep> lower(const std::vector<Step>& steps) {
    std::vector<ProgramStep> out;
    const std::unique_ptr<BlockLowering> block = device_.block(b_, steps);
    for (const Step& s : steps) {
      if (lower_custom(s, b_, device_.gpu_dialect(), out) || block->lower(s, out)) continue;
      ProgramStep p = b_.step_like(s);
      p.op = lower_node(std::get<NodeStep>(s.op));
      out.push_back(std::move(p));
    }
    return out;
  }

  StepOp lower_node(const NodeStep& s) {
    const Node& n = *s.node;
    if (const auto* r = n.as<RoutineOp>())
      return RoutineStep{r->name, b_.refs(n.inputs), b_.refs(n.outputs), r->params, r->floats};
    if (const auto* b = n.as<BindOp>()) {
      BindStep step{b_.buffer(n.inputs[0]), {}};
      for (const Expr& e : b->symbols) step.symbols.push_back(static_cast<int>(e->i));
      return step;
    }
    if (const auto* c = n.as<CheckOp>()) return CheckStep{c->condition, c->message, c->assumption};
    if (const auto* i = n.as<IfOp>()) {
      IfStep step;
      step.condition = i->condition;
      step.then_block = std::make_unique<Block>();
      step.else_block = std::make_unique<Block>();
      lower(*s.bodies[0], *step.then_block);
      lower(*s.bodies[1], *step.else_block);
      step.then_symbols = symbol_steps(i->then_symbols);
      step.else_symbols = symbol_steps(i->else_symbols);
      step.outputs = b_.refs(n.outputs);
      return step;
    }
    const auto* w = n.as<WhileOp>();
    check(w != nullptr, "{}: a node of unknown kind", n.origin);
    WhileStep step;
    step.body = std::make_unique<Block>();
    lower(*s.bodies[0], *step.body);
    step.carried = w->carried;
    step.stacked = w->stacked;
    step.initial = b_.refs({n.inputs.begin(), n.inputs.begin() + w->carried});
    step.outputs = b_.refs(n.outputs);
    if (w->iteration) step.iteration = static_cast<int>(w->iteration->i);
    if (w->trips) step.trips = static_cast<int>(w->trips->i);
    step.trip_count = w->trip_count;
    step.condition = w->condition;
    step.next_condition = w->next_condition;
    for (const auto& d : w->carried_dims)
      step.carried_dims.push_back({static_cast<int>(d.symbol->i), d.initial, d.next});
    step.stacked_dims = symbol_steps(w->stacked_dims);
    return step;
  }

  ProgramBuilder& b_;
  const Lowering& device_;
};

/// Names under which sources of CUDA and HIP include what kernels/custom.h provides.
constexpr std::string_view kDialectHeaders[] = {
    "cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "device_launch_parameters.h", "vector_types.h", "cuda_fp16.h",
    "cuda_fp16.hpp", "cuda_bf16.h", "math_constants.h", "device_functions.h", "hip/hip_runtime.h", "hip/hip_fp16.h",
    "hip/hip_bf16.h", "hip/hip_bfloat16.h", "hip/hip_math_constants.h", "stdint.h", "stddef.h", "math.h", "float.h",
    "limits.h", "assert.h", "string.h", "stdio.h", "stdlib.h", "cstdint", "cstddef", "cmath", "cfloat", "climits",
    "cassert", "cstring", "cstdio", "cstdlib", "limits", "type_traits", "utility", "algorithm", "array", "bit",
    "concepts", "cstdarg", "functional", "initializer_list", "tuple", "vector_functions.h", "host_defines.h",
    "driver_types.h", "builtin_types.h", "cuda_pipeline.h", "cuda_pipeline_primitives.h",
    // Of host functions, which a kernel does not use.
    "iostream", "memory", "sstream", "stdexcept", "string", "vector"};

std::vector<SourceFile> dialect_headers() {
  std::vector<SourceFile> headers;
  for (const EmbeddedFile& f : kKernelSources) headers.push_back({f.name, std::string(f.text())});
  for (const std::string_view name : kDialectHeaders)
    headers.push_back({std::string(name), "#pragma once\n#include \"custom.h\"\n"});
  for (const char* name : {"cooperative_groups.h", "cooperative_groups/reduce.h", "cooperative_groups/scan.h",
                           "cooperative_groups/memcpy_async.h", "hip/hip_cooperative_groups.h"})
    headers.push_back({name, "#pragma once\n#include \"custom_groups.h\"\n"});
  return headers;
}

/// Arguments of cc1 for the dialect of kernels/custom.h. Kernels shuffle variables that only one lane has initialised,
/// so passing one to a function must not be undefined.
std::vector<std::string> dialect_arguments(bool gpu) {
  std::vector<std::string> args = {"-fwrapv", "-no-enable-noundef-analysis"};
  // A call that waits for other lanes stays one call, by which they find one another (compile/host_threads.cpp).
  if (!gpu)
    args.insert(args.end(),
                {"-femulated-tls", "-fconvergent-functions", "-fwarn-stack-size=65536", "-Werror=frame-larger-than"});
  return args;
}

using NewNames = std::map<std::string, std::string, std::less<>>;  // by placeholder

/// The compilations of a program, which may go on after it is built.
struct Compilation {
  std::vector<SourceFile> headers, dialect;
  std::vector<CompileJob> jobs;  ///< by object
  std::vector<int> object_of;    ///< by kernel
  std::vector<NewNames> names;   ///< by object; empty: kernels keep their names
  std::size_t always = 0;        ///< so many objects, the first ones, are always needed
  std::shared_ptr<CodeCache> cache;

  /// Whether nothing has to be compiled.
  bool in_cache() const {
    return cache && std::all_of(jobs.begin(), jobs.end(),
                                [&](const CompileJob& job) { return cache->contains(cache_key(job)); });
  }

  std::string renamed(std::size_t object, std::string code) const {
    return names.empty() ? code : rename_kernels(std::move(code), jobs[object].target.kind, names[object]);
  }
  std::string object(std::size_t k) const { return renamed(k, compile(jobs[k], cache.get())); }
};

std::shared_ptr<Compilation> compilation_of(const Program& program, const Lowering& device, const BuildOptions& options,
                                            Grouping grouping) {
  auto c = std::make_shared<Compilation>();
  c->cache = options.cache;
  for (const EmbeddedFile& f : kKernelSources) c->headers.push_back({f.name, std::string(f.text())});
  const Target target = device.target();
  const bool gpu = device.gpu_dialect();
  c->object_of.resize(program.kernels.size());
  for (const Unit& unit : units_of(program, device.kernels_per_object(), grouping)) {
    CompileJob job;
    const bool custom = program.kernels[unit.kernels.front()].spec.family == KernelFamily::kCustom;
    if (custom && c->dialect.empty()) c->dialect = dialect_headers();
    job.headers = custom ? c->dialect : c->headers;
    job.target = target;
    job.options.kernel_language = custom && gpu;
    job.options.extra_cc1 = custom ? dialect_arguments(gpu) : std::vector<std::string>{"-fwrapv"};
    std::vector<const KernelSpec*> specs;
    for (const std::size_t k : unit.kernels) specs.push_back(&program.kernels[k].spec);
    job.source = includes_of(specs, gpu);
    for (const std::size_t k : unit.kernels) {
      const KernelInfo& kernel = program.kernels[k];
      c->object_of[k] = static_cast<int>(c->jobs.size());
      job.source += definition_of(kernel.spec, gpu ? kernel_placeholder(kernel.symbol) : kernel.symbol, gpu);
    }
    c->jobs.push_back(std::move(job));
    if (unit.always) c->always = c->jobs.size();
  }
  return c;
}

/// The compilations of a program. If some may follow in the background, units are small; but a program that has been
/// compiled ahead into the cache is found there.
std::shared_ptr<Compilation> choose_compilation(const Program& program, const Lowering& device,
                                                const BuildOptions& options) {
  if (!options.background) return compilation_of(program, device, options, Grouping::kAnyKernel);
  auto by_need = compilation_of(program, device, options, Grouping::kByNeed);
  if (by_need->always == by_need->jobs.size() || !options.cache) return by_need;
  auto ahead = compilation_of(program, device, options, Grouping::kAnyKernel);
  return ahead->in_cache() ? ahead : by_need;
}

/// Tells each kernel its object. On GPUs, names kernels after the model's nodes.
void assign_objects(Program& program, Compilation& c, bool gpu) {
  const std::vector<std::string> names = gpu ? kernel_names(program) : std::vector<std::string>{};
  c.names.resize(gpu ? c.jobs.size() : 0);
  for (std::size_t k = 0; k < program.kernels.size(); ++k) {
    KernelInfo& kernel = program.kernels[k];
    kernel.object = c.object_of[k];
    if (!gpu) continue;
    c.names[static_cast<std::size_t>(kernel.object)][kernel_placeholder(kernel.symbol)] = names[k];
    kernel.symbol = names[k];
  }
}

/// Compiles what every run needs; the rest follows in the background.
Objects compile_first(const std::shared_ptr<const Compilation>& c, const BuildOptions& options) {
  std::vector<BackgroundTexts::Make> makers;
  for (std::size_t k = 0; k < c->jobs.size(); ++k) makers.push_back([c, k] { return c->object(k); });
  auto objects = std::make_shared<BackgroundTexts>(std::move(makers), release_compiler_memory);
  std::mutex progress;
  std::size_t done = 0;
  const BackgroundTexts::Pause pause;
  run_tasks(c->always, options.threads, [&](std::size_t k) {
    objects->get(k);
    const std::lock_guard lock(progress);
    ++done;
    if (options.progress) options.progress(done, c->always);
  });
  objects->start(options.threads - 1);
  return Objects(std::move(objects));
}

void compile_kernels(Program& program, const Lowering& device, const BuildOptions& options) {
  program.target = device.target().arch;
  const auto c = choose_compilation(program, device, options);
  assign_objects(program, *c, device.gpu_dialect());
  if (options.background && c->always < c->jobs.size()) {
    program.objects = compile_first(c, options);
    return;
  }
  std::vector<std::string> objects = compile_all(c->jobs, options.threads, c->cache.get(), options.progress);
  release_compiler_memory();
  for (std::size_t k = 0; k < objects.size(); ++k) objects[k] = c->renamed(k, std::move(objects[k]));
  program.objects = Objects(std::move(objects));
}

FuseOptions with_options(FuseOptions o, const BuildOptions& options) {
  o.disabled = !options.fuse;
  o.precision = options.precision;
  o.ranges = options.ranges;
  return o;
}

}  // namespace

std::unique_ptr<Lowering> make_lowering(const BuildOptions& options) {
  return options.target.empty() ? host_lowering(options) : gpu_lowering(options);
}

FuseOptions fuse_options_of(const BuildOptions& options) {
  return with_options(make_lowering(options)->fuse_options(), options);
}

std::shared_ptr<Program> build_program(Graph& graph, const BuildOptions& options) {
  const std::unique_ptr<Lowering> device = make_lowering(options);
  ProgramBuilder builder(graph, options);
  const Schedule schedule = fuse(graph, with_options(device->fuse_options(), options));
  Program& program = builder.program();
  for (const Value* v : graph.inputs) program.input_names.push_back(v->name);
  program.output_names = graph.output_names;
  GraphLowering(builder, *device).lower(schedule, program.main);
  for (int k = 0; k < graph.symbols().size(); ++k) program.symbol_names.push_back(graph.symbols().info(k).name);
  const Chip* chip = find_chip(options.target);
  if (chip && !options.all_tilings) drop_candidates(program, *chip, chip->policy.compile_loss);
  compile_kernels(program, *device, options);
  return builder.take();
}

}  // namespace sardonyx
