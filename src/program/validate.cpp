// See validate.h.
#include "program/validate.h"

#include <algorithm>
#include <set>

#include "program/limits.h"
#include "support/error.h"

namespace sardonyx {
namespace {

constexpr std::size_t kMaxSpatial = 3;  // dims of host::ConvDesc's arrays

void require(bool holds, const char* what) {
  if (!holds) fail(ErrorKind::kInvalidModel, "the program is damaged: {}", what);
}

bool constant_size(const Exprs& shape, std::size_t& n) {
  for (const Expr& d : shape) {
    if (!is_const(d) || d->i < 0) return false;
    if (__builtin_mul_overflow(n, static_cast<std::size_t>(d->i), &n)) return false;
  }
  return true;
}

class Validator {
 public:
  explicit Validator(const Program& p) : p_(p) {}

  void run() {
    for (const BufferInfo& b : p_.buffers) buffer_info(b);
    std::set<std::string> symbols;
    for (const KernelInfo& k : p_.kernels)
      require(!k.symbol.empty() && symbols.insert(k.symbol).second, "a kernel has no name, or that of another one");
    for (const KernelInfo& k : p_.kernels)
      require(k.object >= 0 && k.object < static_cast<int>(p_.objects.size()), "a kernel's code does not exist");
    require(p_.init.inputs.empty() && p_.init.outputs.empty(), "the initial steps have inputs");
    block(p_.init);
    block(p_.main);
    require(p_.main.inputs.size() == p_.input_names.size(), "inputs and their names differ in number");
    require(p_.main.outputs.size() == p_.output_names.size(), "outputs and their names differ in number");
    require(std::set<std::string>(p_.input_names.begin(), p_.input_names.end()).size() == p_.input_names.size(),
            "two inputs have one name");
    for (const TensorRef& t : p_.main.inputs)
      require(at(t.buffer).kind == BufferInfo::Kind::kInput, "an input is another kind of buffer");
  }

 private:
  void buffer_info(const BufferInfo& b) const {
    shape(b.shape);
    if (!b.storage_order.empty()) {
      require(b.storage_order.size() == b.shape.size(), "a storage order does not match the rank");
      std::vector<bool> seen(b.shape.size());
      for (const int d : b.storage_order) {
        require(d >= 0 && d < static_cast<int>(seen.size()) && !seen[static_cast<std::size_t>(d)],
                "a storage order is not a permutation");
        seen[static_cast<std::size_t>(d)] = true;
      }
    }
    if (b.kind != BufferInfo::Kind::kConstant) return;
    require(b.constant >= 0 && b.constant < static_cast<int>(p_.constants.size()), "a constant does not exist");
    std::size_t n = size_of(b.dtype);
    require(constant_size(b.shape, n) && n == p_.constants[static_cast<std::size_t>(b.constant)].size,
            "a constant has another size");
  }

  const BufferInfo& at(int buffer) const {
    require(buffer >= 0 && buffer < static_cast<int>(p_.buffers.size()), "a buffer does not exist");
    return p_.buffers[static_cast<std::size_t>(buffer)];
  }
  void number(const Expr& e) const { require(e && e->dtype == DType::kInt64, "a size is missing"); }
  void condition(const Expr& e) const { require(e && !is_float(e->dtype), "a condition is missing"); }
  void shape(const Exprs& dims) const {
    for (const Expr& d : dims) number(d);
  }
  void symbol(int id) const {
    require(id >= 0 && id < static_cast<int>(p_.symbol_names.size()), "a symbol does not exist");
  }
  void symbol_steps(const std::vector<SymbolStep>& list) const {
    for (const SymbolStep& s : list) {
      symbol(s.symbol);
      number(s.value);
    }
  }
  void refs(const std::vector<TensorRef>& list) const {
    for (const TensorRef& t : list) {
      at(t.buffer);
      shape(t.shape);
    }
  }
  static void written(const ProgramStep& s, int buffer) {
    require(std::find(s.writes.begin(), s.writes.end(), buffer) != s.writes.end(),
            "a step does not name what it writes");
  }
  static void written(const ProgramStep& s, const std::vector<TensorRef>& outputs) {
    for (const TensorRef& t : outputs) written(s, t.buffer);
  }

  void block(const Block& b) const {
    refs(b.inputs);
    refs(b.outputs);
    for (const ProgramStep& s : b.steps) {
      for (const int r : s.reads) at(r);
      for (const int w : s.writes)
        require(at(w).kind == BufferInfo::Kind::kTemporary, "a step writes to an input or a constant");
      if (s.when) condition(s.when);
      std::visit([&](const auto& op) { step(s, op); }, s.op);
    }
  }

  void launch(const LaunchStep& l) const {
    require(l.kernel >= 0 && l.kernel < static_cast<int>(p_.kernels.size()), "a kernel does not exist");
    require(l.buffers.size() <= kMaxKernelArguments && l.symbols.size() <= kMaxKernelArguments &&
                l.divisors.size() <= kMaxKernelArguments,
            "a kernel has too many arguments");
    for (const int b : l.buffers) at(b);
    shape(l.symbols);
    shape(l.divisors);
    if (l.limit) number(l.limit);
    if (l.repeat) number(l.repeat);
    const bool custom = p_.kernels[static_cast<std::size_t>(l.kernel)].spec.family == KernelFamily::kCustom;
    const std::size_t axes = custom ? 3 : 0;
    require(l.grid.size() == axes && l.block.size() == axes && (l.shared ? 1 : 0) == (custom ? 1 : 0),
            "a launch's grid does not fit its kernel");
    shape(l.grid);
    shape(l.block);
    if (l.shared) number(l.shared);
  }

  void step(const ProgramStep&, const LaunchStep& l) const {
    launch(l);
    number(l.work_items);
    number(l.work);
  }

  // Tensor maps are made from these numbers (operand_maps.cpp), and the hardware limits them.
  static void copied(const ChoiceStep& c, const GpuTiling& tiling, const std::vector<LaunchStep>& launches) {
    require(c.copied.size() == 1 && size_of(c.type) >= 1 && size_of(c.type) <= 2,
            "a kernel copies operands that it does not have");
    const CopiedOperands& o = c.copied.front();
    for (const CopiedOperand* x : {&o.a, &o.b}) {
      require(x->buffer >= 0 && x->buffer < static_cast<std::int32_t>(launches.front().buffers.size()),
              "a kernel copies operands that it does not have");
      if (x == &o.a && !o.windows.empty()) continue;
      require(x->offset >= 0 && x->pitch > 0 && x->batch >= 0 &&
                  std::max({x->pitch, x->batch, x->head}) < (std::int64_t{1} << 39) && x->inner >= 0 &&
                  std::max(x->inner, x->heads) < (std::int64_t{1} << 31) && x->heads >= 0 &&
                  (x->heads == 0 || (x->head > 0 && x->batch > 0 && x->inner == 0)),
              "a kernel copies operands that it does not have");
    }
    require(tiling.rows <= 256 && tiling.cols <= 256 && tiling.splits == 1 && !tiling.few_rows,
            "a kernel copies more than a tile");
  }

  void windows(const CopiedWindows& w) const {
    for (const Expr* e : {&w.offset, &w.images, &w.pitch}) number(*e);
    for (std::size_t k : {0, 1}) {
      for (const Expr* e : {&w.sizes[k], &w.out[k], &w.pitches[k], &w.pads[k]}) number(*e);
      require(w.strides[k] >= 1 && w.strides[k] <= 8, "tensor maps do not support these windows");
    }
    require(w.channels > 0 && w.channels < (std::int64_t{1} << 31), "tensor maps do not support these windows");
  }

  static void tiling(const GpuTiling& x) {
    require(x.rows > 0 && x.cols > 0 && x.rows <= 4096 && x.cols <= 4096, "a tiling of impossible size");
    require(x.splits >= 1 && x.splits <= 64, "a tiling with an impossible split of K");
    require(x.tree_acc >= 0 && x.tree_acc <= 4096 * 64 && (x.tree_acc == 0 || !x.tma),
            "a tiling with an impossible number of sums");
    require(x.cluster >= 1 && x.cluster <= 8 && (x.cluster == 1 || x.splits == 1),
            "a tiling with an impossible cluster");
    require(x.resident >= 0 && x.resident <= 32 && (x.resident == 0 || (!x.tma && x.splits == 1)),
            "a tiling with an impossible number of workgroups");
    require(!x.groups || (x.splits == 1 && x.cluster == 1 && x.tree_acc == 0 && !x.few_rows),
            "a tiling of groups that divides K, or is for few rows");
    require(x.threads >= 32 && x.threads <= 1024, "a tiling with an impossible number of threads");
  }

  void candidate(const ChoiceStep& s, const Candidate& c, const std::vector<LaunchStep>& launches) const {
    require(!launches.empty(), "a candidate without a kernel");
    if (c.applies) condition(c.applies);
    require(c.tiling.size() <= 1, "a candidate with several tilings");
    if (c.tiling.empty()) {
      number(c.cost);
    } else {
      const GpuTiling& t = c.tiling.front();
      tiling(t);
      require((t.splits == 1 && t.tree_acc == 0) || s.partial >= 0, "a candidate without memory for its partial sums");
      if (t.tma) copied(s, t, launches);
    }
    for (const LaunchStep& l : launches) {
      require(!l.repeat && !l.limit && l.divisors.empty(), "a candidate's launch has fields that only loops have");
      launch(l);
      if (&l == &launches.front() && !c.tiling.empty())
        require(!l.work_items, "a candidate with two grids");
      else
        number(l.work_items);
    }
  }

  // At least one candidate supports all sizes.
  static bool computes_all(const Choice& c) {
    std::int64_t m = 0;
    if (is_const_int(c.m, m)) return true;
    return std::any_of(c.candidates.begin(), c.candidates.end(), [](const Candidate& x) {
      if (!x.tiling.empty()) return !x.tiling.front().few_rows && x.tiling.front().splits == 1;
      return !x.applies || (is_const(x.applies) && !is_const(x.applies, 0));
    });
  }

  void step(const ProgramStep& s, const ChoiceStep& c) const {
    const Choice& choice = c.choice;
    require(!choice.candidates.empty() && c.launches.size() == choice.candidates.size(),
            "a choice without a candidate, or without its kernels");
    for (const Expr* e : {&choice.batches, &choice.m, &choice.n, &choice.k, &c.work}) number(*e);
    if (c.limit) number(c.limit);
    for (std::size_t k = 0; k < choice.candidates.size(); ++k) candidate(c, choice.candidates[k], c.launches[k]);
    require(computes_all(choice), "a choice without a candidate for all sizes");
    if (c.partial >= 0) {
      require(at(c.partial).dtype == DType::kFloat32, "partial sums are not float32");
      written(s, c.partial);
    }
    require(c.copied.size() <= 1, "a choice with several descriptions of its operands");
    for (const CopiedOperands& o : c.copied) {
      require(o.windows.size() <= 1, "a kernel copies several images");
      for (const CopiedWindows& w : o.windows) windows(w);
    }
    require(c.library.size() <= 1, "a choice with several library calls");
    for (const LibraryCall& l : c.library) library(s, l);
  }

  void library(const ProgramStep& s, const LibraryCall& l) const {
    for (const Expr* e : {&l.batches, &l.m, &l.n, &l.k}) number(*e);
    const DType type = at(l.a).dtype, out = at(l.out).dtype;
    require((type == DType::kFloat32 || type == DType::kFloat16 || type == DType::kBFloat16) && at(l.b).dtype == type &&
                (out == type || out == DType::kFloat32) && l.activation <= GemmActivation::kGeluTanh,
            "a library call has impossible types");
    for (const int b : {l.bias, l.residual})
      if (b != -1) require(at(b).dtype == out, "a library call has impossible types");
    written(s, l.out);
    written(s, l.workspace);
    std::size_t bytes = 4;
    require(at(l.workspace).dtype == DType::kFloat32 && constant_size(at(l.workspace).shape, bytes) &&
                bytes >= kLibraryWorkspace,
            "a library's product has too small a workspace");
  }

  void post(const std::vector<PostInfo>& list) const {
    for (const PostInfo& i : list) {
      require(static_cast<int>(i.kind) < kPostKinds, "an epilogue of unknown kind");
      require(has_operand(i.kind) == (i.operand >= 0), "an epilogue's operand is missing");
      if (has_operand(i.kind)) require(at(i.operand).dtype == i.dtype, "an epilogue's operand has the wrong type");
      shape(i.dims);
    }
  }

  // The operands' types decide which kernels run; `floats`: there are steps or a bias.
  void epilogue(const ProgramStep& s, const AccumulatorEpilogue& e, int a, int b, int out, bool floats) const {
    const bool integers = at(a).dtype == DType::kUInt8 && at(b).dtype == DType::kInt8;
    require(e.launch.size() <= 1 && (e.launch.empty() || integers), "an epilogue that its product does not have");
    if (!integers) return;
    require(!floats, "a product of integers with an epilogue of floats");
    if (e.launch.empty()) return require(at(out).dtype == DType::kInt32, "sums of integers are not int32");
    step(s, e.launch.front());
    require(e.launch.front().grid.empty() && e.accumulators >= 0 &&
                e.accumulators < static_cast<int>(e.launch.front().buffers.size()),
            "an epilogue without accumulators");
  }

  void step(const ProgramStep& s, const GemmStep& g) const {
    at(g.a), at(g.b);
    written(s, g.out);
    shape(g.batch_a);
    shape(g.batch_b);
    for (const Expr* e : {&g.m, &g.n, &g.k}) number(*e);
    post(g.post);
    epilogue(s, g.epilogue, g.a, g.b, g.out, !g.post.empty());
  }

  void step(const ProgramStep& s, const ConvStep& c) const {
    at(c.x), at(c.w);
    if (c.bias != -1) at(c.bias);
    written(s, c.out);
    const std::size_t spatial = c.strides.size();
    require(spatial >= 1 && spatial <= kMaxSpatial && c.dilations.size() == spatial && c.pads_begin.size() == spatial &&
                c.pads_end.size() == spatial,
            "a convolution's lists have different lengths");
    for (const auto* list : {&c.strides, &c.dilations})
      for (const std::int64_t n : *list) require(n >= 1, "a convolution's stride or dilation is not positive");
    require(c.groups >= 1, "a convolution without groups");
    for (const Exprs* e : {&c.x_shape, &c.w_shape, &c.out_shape}) {
      shape(*e);
      require(e->size() == spatial + 2, "a convolution's tensor has the wrong rank");
    }
    shape(c.pads_begin);
    shape(c.pads_end);
    post(c.post);
    epilogue(s, c.epilogue, c.x, c.w, c.out, !c.post.empty() || c.bias != -1);
    if (!c.epilogue.launch.empty()) require(c.channels_last, "an epilogue of sums in another order");
  }

  void heads(const HeadRef& r) const {
    at(r.buffer);
    number(r.offset);
    require(r.strides.size() == 4, "a tensor of attention has the wrong rank");
    shape(r.strides);
  }

  void step(const ProgramStep& s, const AttentionStep& a) const {
    for (const HeadRef* r : {&a.q, &a.k, &a.v, &a.out}) heads(*r);
    for (const HeadRef* r : {&a.bias, &a.begin, &a.end, &a.sink, &a.pages})
      if (r->buffer != -1) heads(*r);
    for (const HeadRef* r : {&a.begin, &a.end, &a.pages})
      if (r->buffer != -1) require(at(r->buffer).dtype == DType::kInt64, "attention's limits are not integers");
    if (a.pages.buffer != -1) {
      require(a.page_rows >= 1, "attention's pages have no rows");
      number(a.k_page);
      number(a.v_page);
    }
    require((a.k_scale.buffer == -1) == (a.v_scale.buffer == -1), "attention has scales of keys or values alone");
    const bool scaled = a.k_scale.buffer != -1;
    const DType stored = at(a.k.buffer).dtype;
    require(scaled ? stored == DType::kInt8 || stored == DType::kFloat8E4M3FN : stored == DType::kFloat32,
            "attention's keys are of another type");
    require(at(a.v.buffer).dtype == stored, "attention's keys and values differ in type");
    if (scaled) {
      require(a.pages.buffer != -1, "attention has scales without pages");
      for (const HeadRef* r : {&a.k_scale, &a.v_scale}) {
        heads(*r);
        require(at(r->buffer).dtype == DType::kFloat32, "attention's scales are not floats");
      }
      number(a.k_scale_page);
      number(a.v_scale_page);
    }
    if (a.sink.buffer != -1) require(at(a.sink.buffer).dtype == DType::kFloat32, "attention's sinks are not floats");
    written(s, a.out.buffer);
    require(a.group >= 1, "attention without heads");
    for (const Expr* e : {&a.batch, &a.heads, &a.queries, &a.keys, &a.head_dim, &a.value_dim}) number(*e);
  }

  void step(const ProgramStep& s, const RoutineStep& r) const {
    refs(r.inputs);
    refs(r.outputs);
    written(s, r.outputs);
    shape(r.params);
  }

  void step(const ProgramStep&, const BindStep& b) const {
    std::size_t n = 1;
    require(constant_size(at(b.buffer).shape, n) && n >= b.symbols.size(),
            "more sizes are read from a buffer than it holds");
    for (const int id : b.symbols) symbol(id);
  }

  void step(const ProgramStep&, const CheckStep& c) const { condition(c.condition); }

  void step(const ProgramStep& s, const IfStep& i) const {
    condition(i.condition);
    refs(i.outputs);
    written(s, i.outputs);
    for (const Block* b : {i.then_block.get(), i.else_block.get()}) {
      block(*b);
      require(b->inputs.empty() && b->outputs.size() == i.outputs.size(), "a branch and its If differ in outputs");
    }
    symbol_steps(i.then_symbols);
    symbol_steps(i.else_symbols);
  }

  void step(const ProgramStep& s, const WhileStep& w) const {
    block(*w.body);
    refs(w.initial);
    refs(w.outputs);
    written(s, w.outputs);
    require(w.carried >= 0 && w.stacked >= 0, "a loop carries a negative number of values");
    const auto carried = static_cast<std::size_t>(w.carried), all = carried + static_cast<std::size_t>(w.stacked);
    require(w.initial.size() == carried && w.body->inputs.size() == carried && w.outputs.size() == all &&
                w.body->outputs.size() == all,
            "a loop's lists have different lengths");
    for (const TensorRef& t : w.body->inputs)
      require(at(t.buffer).kind == BufferInfo::Kind::kTemporary, "a loop's variable is an input or a constant");
    for (const int id : {w.iteration, w.trips})
      if (id != -1) symbol(id);
    if (w.trip_count) number(w.trip_count);
    if (w.condition) condition(w.condition);
    if (w.next_condition) condition(w.next_condition);
    for (const auto& d : w.carried_dims) {
      symbol(d.symbol);
      number(d.initial);
      number(d.next);
    }
    symbol_steps(w.stacked_dims);
  }

  const Program& p_;
};

}  // namespace

void validate(const Program& program) { Validator(program).run(); }

}  // namespace sardonyx
