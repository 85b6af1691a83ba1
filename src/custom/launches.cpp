// An operator with kernels: one node of the graph, whose launches, sizes and arguments are formulas of its inputs.
#include <algorithm>

#include "custom/definition.h"
#include "custom/formula.h"
#include "custom/scope.h"
#include "ops/element_math.h"
#include "ops/tensor.h"
#include "program/limits.h"

namespace sardonyx::custom {
namespace {

constexpr std::int64_t kMostThreads = 1024, kFillThreads = 256;

// Kernels that initialise outputs, in the same dialect.
constexpr const char* kInitialSource = R"(
template <class T> __global__ void sdx_fill(T* y, long n) {
  const long i = blockIdx.x * 256l + threadIdx.x;
  if (i < n) y[i] = 0;
}
template <class T> __global__ void sdx_copy(const T* x, T* y, long n) {
  const long i = blockIdx.x * 256l + threadIdx.x;
  if (i < n) y[i] = x[i];
}
)";

const char* word_of(DType t) {
  switch (size_of(t)) {
    case 1:
      return "unsigned char";
    case 2:
      return "unsigned short";
    case 4:
      return "unsigned";
    default:
      return "unsigned long";
  }
}

class LaunchLowering {
 public:
  LaunchLowering(OpContext& c, const Definition& d) : c_(c), d_(d), scope_(c, d) {}

  void run() {
    std::vector<Value*> inputs;
    for (const TensorDeclaration& t : d_.inputs) {
      Value* v = scope_.input(t.name);
      place_[t.name] = v ? static_cast<int>(inputs.size()) : -1;
      if (v) add_type(t.name, v->dtype);
      if (v) inputs.push_back(v);
    }
    std::vector<std::pair<DType, Exprs>> outputs;
    for (const auto* list : {&d_.outputs, &d_.workspace})
      for (const TensorDeclaration& t : *list) {
        place_[t.name] = static_cast<int>(inputs.size() + outputs.size());
        outputs.emplace_back(scope_.type(t), scope_.shape(t));
        add_type(t.name, outputs.back().first);
        initial(t, outputs.back());
      }
    for (const Launch& l : d_.launches) add(l);
    RoutineOp op;
    op.name = d_.name;
    op.params = std::move(params_);
    op.launches = std::make_shared<const std::vector<CustomLaunch>>(std::move(launches_));
    const Node* node = c_.graph().add_node(std::move(op), inputs, outputs);
    for (std::size_t k = 0; k < outputs.size(); ++k)
      made_[k < d_.outputs.size() ? d_.outputs[k].name : d_.workspace[k - d_.outputs.size()].name] = node->outputs[k];
    for (std::size_t k = 0; k < d_.outputs.size(); ++k)
      c_.out(static_cast<int>(k), counted(d_.outputs[k], node->outputs[k]));
  }

 private:
  using Argument = CustomLaunch::Argument;

  void add_type(const std::string& name, DType t) { types_[name] = kernel_type(t); }

  // Begins a launch: its sizes are the first params.
  CustomLaunch begin(const std::string& source, std::string kernel, const Exprs& sizes) {
    CustomLaunch l;
    l.source = source;
    l.kernel = std::move(kernel);
    l.first = params_.size();
    params_.insert(params_.end(), sizes.begin(), sizes.end());
    return l;
  }
  void finish(CustomLaunch l) {
    l.end = params_.size();
    if (l.end - l.first > kMaxKernelArguments) c_.refuse("the launch of {} has too many arguments", l.kernel);
    launches_.push_back(std::move(l));
  }
  Argument whole(const Expr& e) {
    Argument a;
    a.kind = Argument::Kind::kWhole;
    a.param = params_.size();
    params_.push_back(e);
    return a;
  }
  static Argument text(std::string t) {
    Argument a;
    a.kind = Argument::Kind::kText;
    a.text = std::move(t);
    return a;
  }
  static Argument tensor(int place, std::string type) {
    if (place < 0) return text("nullptr");
    Argument a;
    a.tensor = place;
    a.type = std::move(type);
    return a;
  }

  void initial(const TensorDeclaration& t, const std::pair<DType, Exprs>& made) {
    if (t.initial.empty()) return;
    const Expr n = idx::product(made.second);
    const bool fill = t.initial == "0";
    CustomLaunch l = begin(kInitialSource, fmt::format("{}<{}>", fill ? "sdx_fill" : "sdx_copy", word_of(made.first)),
                           {idx::ceildiv(n, kFillThreads), 1, 1, kFillThreads, 1, 1, 0});
    if (!fill) {
      const Value* from = scope_.input(t.initial);
      if (from->dtype != made.first) c_.invalid("'{}' = {}: their types differ", t.name, t.initial);
      c_.graph().add_check(compare(Op::kEq, from->elements(), n),
                           fmt::format("{}: '{}' = {}: their sizes differ", c_.node().describe(), t.name, t.initial));
      l.arguments.push_back(tensor(place_.at(t.initial), ""));
    }
    l.arguments.push_back(tensor(place_.at(t.name), ""));
    l.arguments.push_back(whole(n));
    finish(std::move(l));
  }

  void add(const Launch& l) {
    Exprs sizes;
    for (const Formula& f : l.grid) sizes.push_back(scope_.whole(f, "a size of the grid"));
    Expr threads = 1;
    for (const Formula& f : l.block) {
      sizes.push_back(scope_.whole(f, "a size of the block"));
      threads = threads * sizes.back();
    }
    if (is_const(threads) && (threads->i < 1 || threads->i > kMostThreads))
      c_.invalid("the launch of {} has blocks of {} threads; there are 1 to {}", l.kernel, threads->i, kMostThreads);
    sizes.push_back(scope_.whole(l.shared, "shared"));
    CustomLaunch launch = begin(d_.source, instance(l.kernel), sizes);
    for (const Formula& f : l.arguments) launch.arguments.push_back(argument(f, launch.first));
    finish(std::move(launch));
  }

  Argument argument(const Formula& f, std::size_t first) {
    if (f.kind == Formula::Kind::kName)
      if (const auto it = place_.find(f.text); it != place_.end()) return tensor(it->second, types_[f.text]);
    const Number n = scope_.number(f, [&](const Expr& e) {
      for (std::size_t k = first + 7; k < params_.size(); ++k)
        if (same(params_[k], e)) return fmt::format("s{}", k - first - 7);
      params_.push_back(e);
      return fmt::format("s{}", params_.size() - 1 - first - 7);
    });
    if (n.kind == Number::Kind::kWhole) return whole(n.whole);
    if (n.kind == Number::Kind::kText) c_.invalid("a text can't be an argument of a kernel");
    return text(n.known ? real(n.real) : n.text);
  }

  static std::string real(double x) {
    if (x != x) return "__builtin_nan(\"\")";
    if (x - x != 0) return x > 0 ? "__builtin_inf()" : "-__builtin_inf()";
    return fmt::format("{:a}", x);
  }

  // "rope<T, {dim}>" with the types and numbers of this node.
  std::string instance(const std::string& kernel) const {
    std::string out;
    for (std::size_t at = 0; at < kernel.size();) {
      const char c = kernel[at];
      if (c == '{') {
        const std::size_t end = kernel.find('}', at);
        if (end == std::string::npos) c_.invalid("kernel \"{}\": '}}' is missing", kernel);
        out += constant(kernel.substr(at + 1, end - at - 1));
        at = end + 1;
        continue;
      }
      std::size_t end = at;
      while (end < kernel.size() && is_identifier(kernel.substr(at, end + 1 - at))) ++end;
      if (end == at) {
        out += kernel[at++];
        continue;
      }
      const std::string word = kernel.substr(at, end - at);
      out += is_type(word) ? type(word) : word;
      at = end;
    }
    return out;
  }

  bool is_type(const std::string& word) const {
    for (const auto* list : {&d_.inputs, &d_.outputs, &d_.workspace})
      for (const TensorDeclaration& t : *list)
        if (!t.dtype && t.type == word) return true;
    return false;
  }
  std::string type(const std::string& word) const {
    const auto t = scope_.named_type(word);
    if (!t) c_.invalid("the type {} follows from no input", word);
    std::string cpp = kernel_type(*t);
    if (cpp.empty()) c_.refuse("kernels have no type for elements of {}; declare another type", name(*t));
    return cpp;
  }
  std::string constant(const std::string& text) const {
    const Number n = scope_.number(parse_formula(text));
    if (n.kind == Number::Kind::kReal) return real(n.real);
    if (n.kind != Number::Kind::kWhole || !is_const(n.whole))
      c_.refuse("{{{}}} is {}, which must be known when compiling; fix the dim, or pass the number as an argument",
                text, n.kind == Number::Kind::kWhole ? to_string(n.whole) : "a text");
    return std::to_string(n.whole->i);
  }

  // The part of an output that exists, by the counts that the kernels wrote.
  Value* counted(const TensorDeclaration& t, Value* v) {
    Graph& g = c_.graph();
    std::size_t axis = 0;
    for (const Dim& dim : t.dims) {
      if (dim.kind != Dim::Kind::kCounted) {
        axis += dim.kind == Dim::Kind::kGroup ? scope_.group(dim.name).size() : 1;
        continue;
      }
      Value* count = made_.at(dim.name);
      if (!is_const(count->elements(), 1)) c_.invalid("the count '{}' has shape {}", dim.name, to_string(count->shape));
      // A negative count is a fault of the kernel, like one that is too large.
      Value* checked = tensor::map1(g, tensor::reshape(g, count, {1}), [](const Expr& x) {
        const Expr n = cast(x, DType::kInt64);
        return select(compare(Op::kLt, n, Expr(0)), Expr(std::int64_t{1} << 62), n);
      });
      const Expr n = g.bind(checked, true)[0], most = v->shape[axis];
      g.add_check(compare(Op::kLe, n, most),
                  fmt::format("{}: its kernel wrote a count '{}' beyond the {} elements of '{}'", c_.node().describe(),
                              dim.name, to_string(most), t.name));
      v = tensor::slice(g, v, static_cast<int>(axis++), Expr(0), n);
    }
    return v;
  }

  OpContext& c_;
  const Definition& d_;
  Scope scope_;
  std::map<std::string, int> place_;  ///< of tensors among the node's inputs and outputs
  std::map<std::string, std::string> types_;
  std::map<std::string, Value*> made_;
  Exprs params_;
  std::vector<CustomLaunch> launches_;
};

}  // namespace

void lower_launches(OpContext& c, const Definition& d) { LaunchLowering(c, d).run(); }

}  // namespace sardonyx::custom
