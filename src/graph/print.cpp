// Graphs as text: see text.h.
#include <cmath>

#include "graph/analysis.h"
#include "graph/print_expr.h"
#include "graph/text.h"
#include "graph/text_names.h"

namespace sardonyx {
namespace {

using text::quoted;

class Printer {
 public:
  explicit Printer(const TextOptions& options) : options_(options) {}

  std::string run(const Graph& g) {
    graph(g, 0);
    return std::move(out_);
  }

 private:
  void graph(const Graph& g, int indent) {
    const std::string pad(static_cast<std::size_t>(indent), ' ');
    for (const Value* v : g.inputs) out_ += fmt::format("{}{} = input {}\n", pad, define(v), type(*v));
    for (const auto& n : g.nodes) node(*n, indent);
    out_ += pad + "return";
    for (std::size_t k = 0; k < g.outputs.size(); ++k) {
      out_ += (k ? ", " : " ") + names_.of(g.outputs[k]);
      if (k < g.output_names.size()) out_ += " " + quoted(g.output_names[k]);
    }
    out_ += "\n";
    if (g.final_expressions.empty()) return;
    out_ += pad + "finally " + list(g.final_expressions) + "\n";
  }

  void node(const Node& n, int indent) {
    indent_ = indent;
    const std::string pad(static_cast<std::size_t>(indent), ' ');
    out_ += pad;
    // Nested graphs come before the node's outputs are numbered, as in reading order.
    const std::string op = std::visit([&](const auto& o) { return describe(n, o); }, n.op);
    std::string left;
    for (const Value* v : n.outputs) left += (left.empty() ? "" : ", ") + define(v);
    out_ += (left.empty() ? "" : left + " = ") + op;
    const auto more = [&](const Value& v) {
      if (v.content && n.as<LoopOp>()) out_ += " content {" + list(*v.content) + "}";
    };
    for (const Value* v : n.outputs) more(*v);
    if (options_.origins && !n.origin.empty()) out_ += " @" + quoted(n.origin);
    out_ += "\n";
  }

  std::string define(const Value* v) {
    std::string s = names_.define(v);
    return v->name.empty() ? s : s + " " + quoted(v->name);
  }

  std::string order(const Value& v) const {
    return v.storage_order.empty() ? "" : fmt::format(" order({})", fmt::join(v.storage_order, ", "));
  }

  std::string type(const Value& v) const { return fmt::format("{}[{}]{}", name(v.dtype), list(v.shape), order(v)); }

  std::string types(const Node& n) const {
    std::string s;
    for (const Value* v : n.outputs) s += (s.empty() ? "" : ", ") + type(*v);
    return s;
  }

  std::string expression(const Expr& e) const { return text::ExprPrinter(names_).print(e); }

  std::string list(const Exprs& e) const {
    std::string s;
    for (const Expr& x : e) s += (s.empty() ? "" : ", ") + expression(x);
    return s;
  }

  std::string inputs(const Node& n) const {
    std::string s;
    for (const Value* v : n.inputs) s += (s.empty() ? "" : ", ") + names_.of(v);
    return s;
  }

  // "float32[i0 < n, i1 < 4; i2 < 8]": the output's type by variables, and those that are summed over.
  std::string variables(const Node& n, const Exprs& vars, const Exprs& summed, text::ExprPrinter& p) const {
    const Value& v = *n.outputs[0];
    std::string s = p.declare(vars, 'i');
    if (!summed.empty()) s += "; " + p.declare(summed, 'i');
    return fmt::format("{}[{}]{}", name(v.dtype), s, order(v));
  }

  std::string describe(const Node& n, const ConstantOp&) const {
    const Value& v = *n.outputs[0];
    const Expr count = v.elements();
    std::string elements = "...";
    if (is_const(count) && count->i <= options_.most_elements && (count->i == 0 || constant_element(v, 0))) {
      elements.clear();
      for (std::int64_t k = 0; k < count->i; ++k)
        elements += (k ? ", " : "") + text::number(constant_element(v, k), false);
    }
    return fmt::format("constant {} {{{}}}", type(v), elements);
  }
  std::string describe(const Node& n, const LoopOp& l) const {
    text::ExprPrinter p(names_);
    const std::string vars = variables(n, l.vars, {}, p);
    return fmt::format("loop {}: {}", vars, p.print(l.body));
  }
  std::string describe(const Node& n, const ViewOp&) const { return fmt::format("view {}: {}", types(n), inputs(n)); }
  std::string describe(const Node& n, const MatMulOp& m) const {
    text::ExprPrinter p(names_);
    const std::string vars = variables(n, m.vars, {m.k}, p);
    const std::string a = p.print(m.a), b = p.print(m.b);
    if (!m.end) return fmt::format("matmul {}: {}, {}", vars, a, b);
    const std::string owner = p.print(m.owner), groups = p.declare({m.group}, 'i');
    return fmt::format("matmul {}: {}, {} by {} over [{}] to {}", vars, a, b, owner, groups, p.print(m.end));
  }
  std::string describe(const Node& n, const ConvOp& c) const {
    std::vector<std::string> a;
    const auto ones = [](const std::vector<std::int64_t>& l) {
      return std::all_of(l.begin(), l.end(), [](std::int64_t x) { return x == 1; });
    };
    if (!ones(c.strides)) a.push_back(fmt::format("strides = [{}]", fmt::join(c.strides, ", ")));
    if (!ones(c.dilations)) a.push_back(fmt::format("dilations = [{}]", fmt::join(c.dilations, ", ")));
    Exprs pads = c.pads_begin;
    pads.insert(pads.end(), c.pads_end.begin(), c.pads_end.end());
    if (!std::all_of(pads.begin(), pads.end(), [](const Expr& e) { return is_const(e, 0); }))
      a.push_back(fmt::format("pads = [{}]", list(pads)));
    if (c.groups != 1) a.push_back(fmt::format("groups = {}", c.groups));
    if (c.zeros != 0) a.push_back(fmt::format("zeros = {}", c.zeros));
    if (c.padding != 0) a.push_back(fmt::format("padding = {}", c.padding));
    if (c.transposed) a.push_back("transposed");
    if (c.exact) a.push_back("exact");
    return fmt::format("conv {}: {}{}", types(n), inputs(n),
                       a.empty() ? "" : fmt::format(" {{{}}}", fmt::join(a, ", ")));
  }
  std::string describe(const Node& n, const AttentionOp& a) const {
    text::ExprPrinter p(names_);
    std::string s = fmt::format("attention {} over [{}] {{", types(n), p.declare(a.vars, 'i'));
    s += "scale = " + p.print(a.scale);
    for (const auto& [e, what] :
         {std::pair(a.q, "q"), std::pair(a.k, "k"), std::pair(a.v, "v"), std::pair(a.k_scale, "k_scale"),
          std::pair(a.v_scale, "v_scale"), std::pair(a.bias, "bias"), std::pair(a.begin, "begin"),
          std::pair(a.end, "end"), std::pair(a.sink, "sink")})
      if (e) s += fmt::format(", {} = {}", what, p.print(e));
    if (a.softcap != 0) s += ", softcap = " + text::number(constant_float(a.softcap, DType::kFloat64), false);
    if (a.zero_empty) s += ", zero_empty";
    return s + "}";
  }
  std::string describe(const Node& n, const RoutineOp& r) const {
    std::string s = fmt::format("routine {} {}: {}", quoted(r.name), types(n), inputs(n));
    std::string floats;
    for (const double f : r.floats)
      floats += (floats.empty() ? "" : ", ") + text::number(constant_float(f, DType::kFloat64), false);
    if (r.params.empty() && floats.empty()) return s;
    s += " {";
    if (!r.params.empty()) s += fmt::format("params = [{}]", list(r.params));
    if (!floats.empty()) s += fmt::format("{}floats = [{}]", r.params.empty() ? "" : ", ", floats);
    return s + "}";
  }
  static std::string declared(const Expr& symbol) {
    return fmt::format("{} {}", symbol->f == 0 ? "dim" : "data", text::symbol_text(symbol->name));
  }
  std::string describe(const Node& n, const BindOp& b) const {
    std::string s;
    for (const Expr& e : b.symbols) s += (s.empty() ? "" : ", ") + declared(e);
    return fmt::format("bind {}: {}", s, inputs(n));
  }
  std::string describe(const Node&, const CheckOp& c) const {
    return fmt::format("check {} {}{}", expression(c.condition), quoted(c.message), c.assumption ? " assumption" : "");
  }

  // A nested graph between braces, at the indentation of its node.
  std::string nested(const Graph& g) {
    const int indent = indent_;
    std::string outer = std::move(out_);
    out_.clear();
    graph(g, indent + 2);
    std::string body = std::move(out_);
    out_ = std::move(outer);
    indent_ = indent;
    return fmt::format("{{\n{}{}}}", body, std::string(static_cast<std::size_t>(indent), ' '));
  }
  std::string bindings(const std::vector<SymbolBinding>& list) const {
    std::string s;
    for (const SymbolBinding& b : list)
      s += fmt::format("{}{} = {}", s.empty() ? " with " : ", ", declared(b.symbol), expression(b.value));
    return s;
  }
  std::string describe(const Node& n, const IfOp& i) {
    std::string s = fmt::format("if {} reads {} then ", expression(i.condition), inputs(n));
    s += nested(*i.then_graph) + bindings(i.then_symbols) + " else ";
    s += nested(*i.else_graph) + bindings(i.else_symbols);
    return s + " gives " + types(n);
  }
  std::string describe(const Node& n, const WhileOp& w) {
    std::string s =
        fmt::format("while: {} {{iteration = {}, carried = {}", inputs(n), declared(w.iteration), w.carried);
    if (w.trip_count) s += ", limit = " + expression(w.trip_count);
    if (w.condition) s += ", condition = " + expression(w.condition);
    for (const auto& d : w.carried_dims) s += fmt::format(", carry {} = {}", declared(d.symbol), expression(d.initial));
    s += "} do " + nested(*w.body) + " then {";
    std::vector<std::string> tail;
    if (w.next_condition) tail.push_back("condition = " + expression(w.next_condition));
    for (const auto& d : w.carried_dims)
      tail.push_back(fmt::format("carry {} = {}", text::symbol_text(d.symbol->name), expression(d.next)));
    for (const SymbolBinding& b : w.stacked_dims)
      tail.push_back(fmt::format("stack {} = {}", declared(b.symbol), expression(b.value)));
    if (w.trips) tail.push_back("trips = " + declared(w.trips));
    return s + fmt::format("{}}} gives {}", fmt::join(tail, ", "), types(n));
  }

  TextOptions options_;
  text::ValueNames names_;
  std::string out_;
  int indent_ = 0;
};

}  // namespace

std::string to_string(const Graph& g, const TextOptions& options) { return Printer(options).run(g); }

std::string to_string(const Graph& g) { return to_string(g, TextOptions{}); }

}  // namespace sardonyx
