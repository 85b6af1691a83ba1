// Reports of a program's steps and memory; see report.h.
#include "api/report.h"

#include <algorithm>
#include <set>

#include "program/visit.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

std::vector<std::string> split_origin(const std::string& origin) {
  std::vector<std::string> nodes;
  for (std::size_t at = 0; at < origin.size();) {
    const std::size_t end = std::min(origin.find(" + ", at), origin.size());
    nodes.push_back(origin.substr(at, end - at));
    at = end + 3;
  }
  return nodes;
}

StepReport::Kind kind_of(const ProgramStep& s) {
  if (std::holds_alternative<LaunchStep>(s.op)) return StepReport::Kind::kLoop;
  if (std::holds_alternative<RoutineStep>(s.op)) return StepReport::Kind::kRoutine;
  if (std::holds_alternative<BindStep>(s.op)) return StepReport::Kind::kBind;
  if (std::holds_alternative<CheckStep>(s.op)) return StepReport::Kind::kCheck;
  if (std::holds_alternative<IfStep>(s.op)) return StepReport::Kind::kIf;
  if (std::holds_alternative<WhileStep>(s.op)) return StepReport::Kind::kWhile;
  return StepReport::Kind::kTile;
}

int count(const Block& b) {
  int n = 0;
  for (const ProgramStep& s : b.steps) {
    n += is_launch(kind_of(s)) ? 1 : 0;
    if (const auto* i = std::get_if<IfStep>(&s.op)) n += std::max(count(*i->then_block), count(*i->else_block));
    if (const auto* w = std::get_if<WhileStep>(&s.op)) n += count(*w->body);
  }
  return n;
}

std::vector<ReportTensor> tensors(const Program& p, const std::vector<int>& buffers) {
  std::vector<ReportTensor> out;
  for (int k : buffers) {
    const BufferInfo& b = p.buffers[static_cast<std::size_t>(k)];
    ReportTensor t{k, b.name, b.dtype, {}, b.kind == BufferInfo::Kind::kConstant};
    for (const Expr& d : b.shape) t.shape.push_back(to_string(d));
    out.push_back(std::move(t));
  }
  return out;
}

bool mentions(const Expr& e, const std::vector<int>& symbols) {
  bool found = false;
  if (e && e->has_sym)
    visit(e, [&](const Expr& x) {
      found |= x->op == Op::kSym && std::find(symbols.begin(), symbols.end(), static_cast<int>(x->i)) != symbols.end();
    });
  return found;
}

// Finds what is decided by symbols that a step reads from a tensor.
void decisions(const Block& b, const std::vector<int>& symbols, std::set<std::string>& out) {
  for (const ProgramStep& s : b.steps) {
    if (const auto* i = std::get_if<IfStep>(&s.op)) {
      if (mentions(i->condition, symbols)) out.insert("which branch of an If is taken");
      decisions(*i->then_block, symbols, out);
      decisions(*i->else_block, symbols, out);
    } else if (const auto* w = std::get_if<WhileStep>(&s.op)) {
      if (mentions(w->condition, symbols)) out.insert("whether a Loop starts");
      if (mentions(w->next_condition, symbols)) out.insert("whether a Loop goes on");
      if (mentions(w->trip_count, symbols)) out.insert("how often a Loop runs");
      decisions(*w->body, symbols, out);
    }
  }
}

// Why a step of a GPU program needs the CPU; "" if it doesn't.
std::string cpu_reason(const Program& p, const ProgramStep& s) {
  const auto name_of = [&](int buffer) {
    const std::string& n = p.buffers[static_cast<std::size_t>(buffer)].name;
    return n.empty() ? "a tensor" : "'" + n + "'";
  };
  if (const auto* b = std::get_if<BindStep>(&s.op)) {
    std::set<std::string> what;
    decisions(p.main, b->symbols, what);
    std::string text;
    for (const std::string& w : what) text += (text.empty() ? "" : " and ") + w;
    if (text.empty()) text = "sizes or positions";
    if (p.buffers[static_cast<std::size_t>(b->buffer)].kind == BufferInfo::Kind::kInput)
      return "the input " + name_of(b->buffer) + " decides " + text +
             ": it is read at once if it is in the host's "
             "memory, and read back if it is in GPU memory";
    return "values of " + name_of(b->buffer) + " decide " + text + " and are read back";
  }
  if (const auto* r = std::get_if<RoutineStep>(&s.op))
    return "the routine " + r->name + " has no code for GPUs: its tensors are copied to the host and back";
  return "";
}

void add_steps(const Program& p, const Block& b, int depth, std::vector<StepReport>& out) {
  for (const ProgramStep& s : b.steps) {
    StepReport r;
    r.kind = kind_of(s);
    r.nodes = split_origin(s.origin);
    r.reads = tensors(p, s.reads);
    r.writes = tensors(p, s.writes);
    r.depth = depth;
    if (find_chip(p.target)) r.cpu = cpu_reason(p, s);
    std::set<std::string> names;
    const auto add_name = [&](const std::string& name) {
      if (names.insert(name).second) r.name += (r.name.empty() ? "" : ", ") + name;
    };
    const auto* choice = std::get_if<ChoiceStep>(&s.op);
    const bool tilings = choice && !choice->choice.candidates.front().tiling.empty();
    for_launches(s, [&](const LaunchStep& l) {
      if (tilings && l.work_items) return;  // the second launch of split-K
      const KernelInfo& kernel = p.kernels[static_cast<std::size_t>(l.kernel)];
      if (r.kernel < 0) r.kernel = l.kernel;
      if (kernel.spec.family == KernelFamily::kAttention) r.kind = StepReport::Kind::kTile;
      add_name(kernel.symbol);
    });
    if (choice)
      for (const TunedSize& x : choice->choice.tuned)
        if (x.library) add_name(x.candidate);
    if (const auto* x = std::get_if<RoutineStep>(&s.op)) r.name = x->name;
    const auto integers = [&](int left) { return p.buffers[static_cast<std::size_t>(left)].dtype == DType::kUInt8; };
    if (const auto* g = std::get_if<GemmStep>(&s.op)) r.name = integers(g->a) ? "integer_matmul" : "gemm";
    if (const auto* c = std::get_if<ConvStep>(&s.op)) r.name = integers(c->x) ? "integer_conv" : "conv";
    if (std::holds_alternative<AttentionStep>(s.op)) r.name = "attention";
    out.push_back(std::move(r));
    for (const Block* inside : blocks_of(s)) add_steps(p, *inside, depth + 1, out);
  }
}

// Symbols of input dims by name; -1 for a dim that is an expression.
std::map<std::string, int> symbols_of_inputs(const Program& p) {
  std::map<std::string, int> out;
  for (const TensorRef& r : p.main.inputs)
    for (const Expr& d : p.buffers[static_cast<std::size_t>(r.buffer)].shape)
      if (d->op == Op::kSym) out[p.symbol_names[static_cast<std::size_t>(d->i)]] = static_cast<int>(d->i);
  return out;
}

bool known(const Exprs& shape, const SymbolValues& symbols) {
  bool ok = true;
  for (const Expr& d : shape)
    visit(d, [&](const Expr& x) { ok &= x->op != Op::kSym || symbols.has(static_cast<int>(x->i)); });
  return ok;
}

std::size_t bytes(const BufferInfo& b, const Exprs& shape, const SymbolValues& symbols) {
  std::size_t n = size_of(b.dtype);
  for (const Expr& d : shape) n *= static_cast<std::size_t>(std::max<std::int64_t>(0, evaluate(d, symbols)));
  return n;
}

}  // namespace

const char* name(StepReport::Kind kind) {
  switch (kind) {
    case StepReport::Kind::kLoop:
      return "loop";
    case StepReport::Kind::kTile:
      return "tile";
    case StepReport::Kind::kRoutine:
      return "routine";
    case StepReport::Kind::kBind:
      return "bind";
    case StepReport::Kind::kCheck:
      return "check";
    case StepReport::Kind::kIf:
      return "if";
    case StepReport::Kind::kWhile:
      return "while";
  }
  return "?";
}

bool is_launch(StepReport::Kind kind) {
  return kind == StepReport::Kind::kLoop || kind == StepReport::Kind::kTile || kind == StepReport::Kind::kRoutine;
}

int kernels_per_run(const Program& program) { return count(program.main); }

ProgramReport report(const Program& program) {
  ProgramReport r;
  add_steps(program, program.main, 0, r.steps);
  r.kernels_per_run = kernels_per_run(program);
  r.init_launches = count(program.init);
  for (std::size_t k = 0; k < program.objects.size(); ++k) r.code_bytes += program.objects[k].size();
  return r;
}

std::vector<std::string> input_symbols(const Program& program) {
  std::vector<std::string> out;
  for (const auto& [name, id] : symbols_of_inputs(program)) out.push_back(name);
  return out;
}

MemoryReport memory_report(const Executor& executor, const std::map<std::string, std::int64_t>& dims) {
  const Program& p = executor.program();
  SymbolValues symbols;
  std::string names;
  for (const auto& [name, id] : symbols_of_inputs(p)) {
    names += (names.empty() ? "" : ", ") + name;
    if (auto it = dims.find(name); it != dims.end()) symbols.set(id, it->second);
  }
  for (const auto& [name, id] : symbols_of_inputs(p))
    if (!symbols.has(id))
      fail(ErrorKind::kInvalidArgument, "dim '{}' has no size; give one for each of: {}", name, names);
  for (const auto& [name, value] : dims)
    if (value < 0) fail(ErrorKind::kInvalidArgument, "dim '{}' can't be {}", name, value);
  MemoryReport m;
  m.weights = executor.constant_bytes();
  const ArenaPlan plan = executor.plan(symbols);
  m.arena = plan.total;
  m.live = plan.live;
  m.unplanned = plan.unplanned;
  for (const auto& [buffer, offset] : plan.offsets) {
    const BufferInfo& b = p.buffers[static_cast<std::size_t>(buffer)];
    m.temporaries += bytes(b, b.shape, symbols);
  }
  for (const TensorRef& r : p.main.inputs)
    m.inputs += bytes(p.buffers[static_cast<std::size_t>(r.buffer)], r.shape, symbols);
  for (const TensorRef& r : p.main.outputs) {
    if (known(r.shape, symbols))
      m.outputs += bytes(p.buffers[static_cast<std::size_t>(r.buffer)], r.shape, symbols);
    else
      ++m.unplanned;
  }
  return m;
}

}  // namespace sardonyx
