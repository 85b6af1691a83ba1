// See visit.h.
#include "program/visit.h"

#include "program/fields.h"

namespace sardonyx {
namespace {

/// An archive (see archive.h) that calls `f` with each part of type T in the fields of a value, without descending into
/// that part. Nested blocks are skipped unless asked for.
template <typename T, typename F>
class PartVisitor {
 public:
  template <typename U>
  using Ref = const U&;

  explicit PartVisitor(const F& f) : f_(f) {}
  template <typename... U>
  void operator()(const U&... values) {
    (visit(values), ...);
  }

 private:
  template <typename U>
  void visit(const U& value) {
    if constexpr (std::is_same_v<U, T>)
      f_(value);
    else if constexpr (std::is_class_v<U> && !std::is_same_v<U, Expr> && !std::is_same_v<U, std::string>)
      fields(*this, value);
  }
  template <typename U>
  void visit(const std::vector<U>& list) {
    for (const U& value : list) visit(value);
  }
  template <typename U>
  void visit(const std::optional<U>& value) {
    if (value) visit(*value);
  }
  void visit(const std::unique_ptr<Block>& block) {
    if constexpr (std::is_same_v<T, Block>) f_(*block);
  }
  template <typename... U>
  void visit(const std::variant<U...>& value) {
    std::visit([this](const auto& alternative) { visit(alternative); }, value);
  }

  const F& f_;
};

template <typename T, typename F>
void for_parts(const ProgramStep& step, const F& f) {
  PartVisitor<T, F> visitor(f);
  visitor(step);
}

}  // namespace

void for_expressions(const ProgramStep& step, const std::function<void(const Expr&)>& f) {
  for_parts<Expr>(step, [&](const Expr& e) {
    if (e) f(e);
  });
}

void for_launches(const ProgramStep& step, const std::function<void(const LaunchStep&)>& f) {
  for_parts<LaunchStep>(step, f);
}

std::vector<const Block*> blocks_of(const ProgramStep& step) {
  std::vector<const Block*> blocks;
  for_parts<Block>(step, [&](const Block& b) { blocks.push_back(&b); });
  return blocks;
}

void for_steps(const Block& block, const std::function<void(const ProgramStep&)>& f) {
  for (const ProgramStep& s : block.steps) {
    f(s);
    for (const Block* inside : blocks_of(s)) for_steps(*inside, f);
  }
}

// The parts of a step that is not const are not const either.
void for_launches(ProgramStep& step, const std::function<void(LaunchStep&)>& f) {
  for_parts<LaunchStep>(step, [&](const LaunchStep& l) { f(const_cast<LaunchStep&>(l)); });
}

void for_steps(Block& block, const std::function<void(ProgramStep&)>& f) {
  const Block& same = block;
  for_steps(same, [&](const ProgramStep& s) { f(const_cast<ProgramStep&>(s)); });
}

Expr limit_of(const ProgramStep& step) {
  if (const auto* l = std::get_if<LaunchStep>(&step.op)) return l->limit;
  if (const auto* c = std::get_if<ChoiceStep>(&step.op)) return c->limit;
  return {};
}

bool may_run(const ProgramStep& step, const SymbolValues& symbols) {
  return !step.when || !evaluable(step.when, symbols) || evaluate(step.when, symbols) != 0;
}

std::vector<int> working_memory(const ProgramStep& step) {
  std::vector<int> buffers;
  if (const auto* c = std::get_if<ChoiceStep>(&step.op)) {
    if (c->partial >= 0) buffers.push_back(c->partial);
    for (const LibraryCall& l : c->library) buffers.push_back(l.workspace);
  }
  return buffers;
}

}  // namespace sardonyx
