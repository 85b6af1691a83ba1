// Lowers nodes one by one, in order, within nested scopes of names.
#include "import/import.h"

#include <exception>
#include <unordered_map>

#include "import/lower_node.h"

namespace sardonyx {
namespace {

Data share(const model::Tensor& t) { return {t.owner, t.data, t.bytes}; }

/// What GraphLowerer::assume() has answered, in the order of the first questions.
using Assumptions = std::vector<std::pair<const model::Node*, bool>>;
constexpr int kMaxAttempts = 32;                        // imports with different assumptions: each attempt settles one
constexpr std::size_t kMostSequenceElements = 1 << 20;  // each SequenceInsert has a list of its own

class Importer : public GraphLowerer {
 public:
  Importer(const model::Model& model, const ImportOptions& options, Assumptions& assumptions)
      : model_(model), options_(options), assumptions_(assumptions) {}

  std::unique_ptr<Graph> run() {
    auto graph = std::make_unique<Graph>();
    Scope scope{nullptr, {}, graph.get()};
    scope_ = &scope;
    add_initializers(model_.graph, *graph);
    for (const model::ValueInfo& info : model_.graph.inputs)
      if (!info.has_default) scope.names[info.name] = add_input(*graph, info, options_);  // else an initializer
    lower_nodes(model_.graph, *graph);
    for (const model::ValueInfo& info : model_.graph.outputs) {
      Value* v = find(info.name);
      if (!v) refuse_output(info.name, "the model");
      graph->outputs.push_back(v);
      graph->output_names.push_back(info.name);
    }
    if (options_.all_outputs) add_all_outputs(*graph, scope.names);
    scope_ = nullptr;
    return graph;
  }

  std::vector<Value*> lower_body(const model::Graph& body, Graph& into, const std::vector<Value*>& inputs) override {
    Scope scope{scope_, {}, &into};
    scope_ = &scope;
    struct Restore {
      Importer& i;
      Scope* old;
      ~Restore() { i.scope_ = old; }
    } restore{*this, scope.outer};
    add_initializers(body, into);
    if (inputs.size() > body.inputs.size())
      fail(ErrorKind::kInvalidModel, "graph '{}' takes {} inputs, not {}", body.name, body.inputs.size(),
           inputs.size());
    for (std::size_t k = 0; k < inputs.size(); ++k) scope.names[body.inputs[k].name] = inputs[k];
    lower_nodes(body, into);
    std::vector<Value*> out;
    for (const model::ValueInfo& info : body.outputs) {
      Value* v = find(info.name);
      if (!v) refuse_output(info.name, fmt::format("graph '{}'", body.name));
      out.push_back(v);
    }
    return out;
  }

  // A condition of sizes mostly singles out a special one (dim == 1), so the other branch comes first.
  bool assume(const model::Node& node) override {
    for (const auto& [known, holds] : assumptions_)
      if (known == &node) return holds;
    assumptions_.emplace_back(&node, false);
    return false;
  }

 private:
  struct Scope {
    Scope* outer;
    std::map<std::string, Value*> names;
    Graph* graph;
    std::map<std::string, Sequence> sequences = {};
  };

  Value* find(const std::string& name) const {
    for (const Scope* s = scope_; s; s = s->outer) {
      auto it = s->names.find(name);
      if (it != s->names.end()) return it->second;
    }
    // Initializers become constants at first use, so that unsupported but unused ones do no harm.
    for (auto it = pending_.rbegin(); it != pending_.rend(); ++it) {
      auto t = (*it)->find(name);
      if (t == (*it)->end()) continue;
      t->second.tensor->require();
      Value* v =
          t->second.graph->add_constant(t->second.tensor->dtype, t->second.tensor->dims, share(*t->second.tensor));
      v->name = name;
      (*it)->erase(t);
      const_cast<Importer*>(this)->constants_[name] = v;
      return v;
    }
    auto it = constants_.find(name);
    return it == constants_.end() ? nullptr : it->second;
  }

  const Sequence* find_sequence(const std::string& name) const {
    for (const Scope* s = scope_; s; s = s->outer)
      if (const auto it = s->sequences.find(name); it != s->sequences.end()) return &it->second;
    return nullptr;
  }

  // Of a graph's output that is no tensor.
  [[noreturn]] void refuse_output(const std::string& name, const std::string& graph) const {
    if (find_sequence(name))
      fail(ErrorKind::kUnsupported, "output '{}' of {} is a sequence; only tensors can be outputs", name, graph);
    fail(ErrorKind::kInvalidModel, "output '{}' of {} is not computed by any node", name, graph);
  }

  void add_initializers(const model::Graph& g, Graph& graph) {
    auto table = std::make_shared<Pending>();
    for (const model::Tensor& t : g.initializers) (*table)[t.name] = {&t, &graph};
    pending_.push_back(std::move(table));
  }

  void lower_nodes(const model::Graph& g, Graph& graph) {
    for (const model::Node& node : g.nodes) {
      try {
        lower(node, graph);
      } catch (const Error& e) {
        throw RefusedNode(e, node.index);  // of the outermost graph in the end
      }
    }
  }

  void lower(const model::Node& node, Graph& graph) {
    const OpDef& op = operator_of(node, options_.custom.get());
    std::vector<Value*> inputs;
    NodeSequences sequences;
    for (const std::string& name : node.inputs) {
      Value* v = name.empty() ? nullptr : find(name);
      if (const Sequence* s = v || name.empty() ? nullptr : find_sequence(name))
        sequences.inputs[static_cast<int>(inputs.size())] = *s;
      else if (!v && !name.empty())
        fail(ErrorKind::kInvalidModel, "{}: input '{}' is not defined before it is used", node.describe(), name);
      inputs.push_back(v);
    }
    const std::vector<Value*> outputs = lower_node(op, node, graph, std::move(inputs), *this, sequences);
    for (std::size_t k = 0; k < outputs.size(); ++k)
      if (outputs[k]) scope_->names[node.outputs[k]] = outputs[k];
    for (const auto& [k, s] : sequences.outputs) sequence_elements_ += s.size();
    if (sequence_elements_ > kMostSequenceElements)
      fail(ErrorKind::kUnsupported, "{}: the sequences of the model have more than {} tensors in all", node.describe(),
           kMostSequenceElements);
    for (auto& [k, s] : sequences.outputs)
      if (static_cast<std::size_t>(k) < node.outputs.size() && !node.outputs[static_cast<std::size_t>(k)].empty())
        scope_->sequences[node.outputs[static_cast<std::size_t>(k)]] = std::move(s);
  }

  struct PendingTensor {
    const model::Tensor* tensor;
    Graph* graph;
  };
  using Pending = std::map<std::string, PendingTensor>;

  const model::Model& model_;
  const ImportOptions& options_;
  Assumptions& assumptions_;
  Scope* scope_ = nullptr;
  std::size_t sequence_elements_ = 0;
  std::vector<std::shared_ptr<Pending>> pending_;
  std::map<std::string, Value*> constants_;
};

void collect(const model::Graph& g, const CustomOperators* custom, std::vector<Refusal>& out) {
  for (const model::Node& n : g.nodes) {
    if (!find_operator(n.domain, n.op_type, custom))
      out.push_back({n.describe(), fmt::format("operator {}{} is not supported",
                                               n.domain.empty() ? "" : n.domain + "::", n.op_type)});
    for (const auto& [key, value] : n.attributes) {
      if (const auto* sub = std::get_if<model::GraphPtr>(&value)) collect(**sub, custom, out);
      if (const auto* subs = std::get_if<std::vector<model::GraphPtr>>(&value))
        for (const auto& s : *subs) collect(*s, custom, out);
    }
  }
}

}  // namespace

std::unique_ptr<Graph> import_model(const model::Model& model, const ImportOptions& options) {
  Assumptions assumptions;
  std::exception_ptr first;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    try {
      return Importer(model, options, assumptions).run();
    } catch (const Error&) {
      if (!first) first = std::current_exception();
      // The last assumption that can be reversed is.
      while (!assumptions.empty() && assumptions.back().second) assumptions.pop_back();
      if (assumptions.empty()) break;
      assumptions.back().second = true;
    }
  }
  std::rethrow_exception(first);
}

std::vector<Refusal> unsupported_nodes(const model::Model& model, const CustomOperators* custom) {
  std::vector<Refusal> out;
  collect(model.graph, custom, out);
  return out;
}

}  // namespace sardonyx
