// See operators.h. Also register_custom_operator() and the functions declared beside it.
#include "custom/operators.h"

#include <mutex>

#include "custom/definition.h"
#include "custom/toml_file.h"
#include "support/error.h"

namespace sardonyx {
namespace {

struct Registered {
  std::mutex mutex;
  std::shared_ptr<const CustomOperators> operators = std::make_shared<CustomOperators>();
};
Registered& registered() {
  static Registered r;
  return r;
}

template <typename F>
void change(const F& f) {
  Registered& r = registered();
  const std::lock_guard lock(r.mutex);
  auto next = std::make_shared<CustomOperators>(*r.operators);
  f(*next);
  r.operators = std::move(next);
}

/// The operator as models use it. Throws as parse_definition().
OpDef operator_definition(const CustomOperator& op) {
  auto d = std::make_shared<const custom::Definition>(custom::parse_definition(op));
  OpDef def;
  def.name = d->op;
  def.domain = d->domain;
  def.lower = [d](OpContext& c) { d->expression ? custom::lower_expression(c, *d) : custom::lower_launches(c, *d); };
  return def;
}

void append(std::string& to, const std::string& text) { to += fmt::format("{}:{}", text.size(), text); }
void append(std::string& to, const std::vector<std::string>& list) {
  to += fmt::format("[{}]", list.size());
  for (const std::string& s : list) append(to, s);
}

}  // namespace

void CustomOperators::add(const CustomOperator& op) {
  Entry e{op, operator_definition(op)};
  if (OpRegistry::instance().find(e.op.domain, e.op.name))
    fail(ErrorKind::kInvalidArgument,
         "custom operator {}: Sardonyx has an operator of this name; choose another domain", op.name);
  all_.insert_or_assign(op.name, std::move(e));
}

void CustomOperators::add_file(const std::filesystem::path& file) {
  for (const CustomOperator& op : custom::read_toml(file)) add(op);
}

const OpDef* CustomOperators::find(std::string_view domain, std::string_view name) const {
  const auto it = all_.find(fmt::format("{}::{}", domain, name));
  return it == all_.end() ? nullptr : &it->second.op;
}

const CustomOperator* CustomOperators::definition(std::string_view name) const {
  const auto it = all_.find(name);
  return it == all_.end() ? nullptr : &it->second.definition;
}

std::vector<std::string> CustomOperators::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : all_) out.push_back(name);
  return out;
}

std::string CustomOperators::fingerprint() const {
  std::string text;
  for (const auto& [name, entry] : all_) {
    const CustomOperator& op = entry.definition;
    append(text, name);
    for (const auto* list : {&op.inputs, &op.outputs, &op.attributes, &op.workspace, &op.let, &op.require})
      append(text, *list);
    append(text, op.source);
    append(text, op.expression);
    text += fmt::format("[{}]", op.launches.size());
    for (const CustomKernel& k : op.launches) {
      append(text, k.kernel);
      append(text, k.shared);
      for (const auto* list : {&k.grid, &k.block, &k.arguments}) append(text, *list);
    }
  }
  return text;
}

std::shared_ptr<const CustomOperators> known_custom_operators(const std::filesystem::path& file) {
  std::shared_ptr<const CustomOperators> known;
  {
    Registered& r = registered();
    const std::lock_guard lock(r.mutex);
    known = r.operators;
  }
  if (file.empty()) return known;
  auto all = std::make_shared<CustomOperators>(*known);
  all->add_file(file);
  return all;
}

const OpDef* find_operator(std::string_view domain, std::string_view name, const CustomOperators* custom) {
  if (const OpDef* own = OpRegistry::instance().find(domain, name)) return own;
  return custom ? custom->find(domain, name) : nullptr;
}

void register_custom_operator(const CustomOperator& op) {
  change([&](CustomOperators& all) { all.add(op); });
}
void register_custom_operators(const std::filesystem::path& file) {
  change([&](CustomOperators& all) { all.add_file(file); });
}
std::vector<std::string> custom_operators() { return known_custom_operators({})->names(); }

}  // namespace sardonyx
