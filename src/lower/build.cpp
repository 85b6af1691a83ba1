// From a schedule to steps over numbered buffers, and from kernels to machine code. The steps of each kind of device
// are made by the implementations of lowering.h.
#include "lower/build.h"

#include <algorithm>
#include <array>

#include "compile/backend.h"
#include "compile/compiler.h"
#include "fuse/schedule.h"
#include "kernel_sources.h"
#include "lower/lowering.h"
#include "lower/program_builder.h"
#include "support/error.h"

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
      if (block->lower(s, out)) continue;
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

void compile_kernels(Program& program, const Lowering& device, const BuildOptions& options) {
  std::vector<SourceFile> headers;
  for (const EmbeddedFile& f : kKernelSources) headers.push_back({f.name, std::string(f.text())});
  const Target target = device.target();
  const bool gpu = device.gpu_dialect();
  program.target = target.arch;
  std::vector<CompileJob> jobs;
  for (std::size_t k = 0; k < program.kernels.size(); k += device.kernels_per_object()) {
    CompileJob job;
    job.headers = headers;
    job.target = target;
    job.options.extra_cc1 = {"-fwrapv"};
    const std::size_t end = std::min(k + device.kernels_per_object(), program.kernels.size());
    std::vector<const KernelSpec*> specs;
    for (std::size_t j = k; j < end; ++j) specs.push_back(&program.kernels[j].spec);
    job.source = includes_of(specs, gpu);
    for (std::size_t j = k; j < end; ++j) {
      KernelInfo& kernel = program.kernels[j];
      kernel.object = static_cast<int>(jobs.size());
      job.source += definition_of(kernel.spec, kernel.symbol, gpu);
    }
    jobs.push_back(std::move(job));
  }
  program.objects = compile_all(jobs, options.threads, options.cache, options.progress);
  release_compiler_memory();
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
  compile_kernels(program, *device, options);
  return builder.take();
}

}  // namespace sardonyx
