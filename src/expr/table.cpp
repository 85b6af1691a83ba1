// Tables of shape expressions; see table.h.
#include "expr/table.h"

#include <algorithm>

#include "expr/node.h"
#include "support/error.h"

namespace sardonyx {
namespace {

bool is_comparison(Op op) { return op >= Op::kEq && op <= Op::kGe; }

void require(bool holds, const char* what) {
  if (!holds) fail(ErrorKind::kInvalidModel, "a size expression is damaged: {}", what);
}

}  // namespace

int table_arity(Op op) {
  switch (op) {
    case Op::kConst:
    case Op::kSym:
      return 0;
    case Op::kSelect:
      return 3;
    case Op::kVar:
    case Op::kLoad:
    case Op::kReduce:
    case Op::kRandom:
    case Op::kBitCast:
      return -1;
    default:
      return op >= Op::kNeg && op <= Op::kCast ? 1 : op >= Op::kAdd && op <= Op::kGe ? 2 : -1;
  }
}

std::uint32_t ExprTable::add(const Expr& e) {
  // Depth and tree size of every node, computed once.
  struct Size {
    std::uint32_t depth = 1;
    std::uint64_t nodes = 1;
  };
  std::unordered_map<const ExprNode*, Size> sizes;
  visit(e, [&](const Expr& x) {
    Size s;
    for (const Expr& a : x->args) {
      s.depth = std::max(s.depth, sizes[a.get()].depth + 1);
      s.nodes = std::min(s.nodes + sizes[a.get()].nodes, TableReader::kMaxTreeNodes + 1);
    }
    sizes[x.get()] = s;
  });
  const Size s = sizes[e.get()];
  if (s.depth > TableReader::kMaxDepth || s.nodes > TableReader::kMaxTreeNodes)
    fail(ErrorKind::kUnsupported,
         "a size of the program is too long an expression to be saved; fix some of the model's dims");
  return add_nodes(e);
}

std::uint32_t ExprTable::add_nodes(const Expr& e) {
  if (const auto it = ids_.find(e); it != ids_.end()) return it->second;
  check(table_arity(e->op) == static_cast<int>(e->args.size()), "{} is not a size", to_string(e));
  TableNode n{e->op, e->dtype, e->i, e->f, {}};
  for (const Expr& a : e->args) n.args.push_back(add_nodes(a));
  nodes_.push_back(std::move(n));
  return ids_[e] = static_cast<std::uint32_t>(nodes_.size() - 1);
}

void TableReader::add(const TableNode& n) {
  require(n.op <= Op::kRandom && static_cast<int>(n.dtype) < kDTypeCount, "unknown operator or type");
  require(table_arity(n.op) == static_cast<int>(n.args.size()), "wrong number of operands");
  Entry entry;
  Exprs args;
  for (const std::uint32_t a : n.args) {
    require(a < entries_.size(), "an operand does not exist");
    args.push_back(entries_[a].e);
    entry.depth = std::max(entry.depth, entries_[a].depth + 1);
    entry.tree_nodes += entries_[a].tree_nodes;  // three times the bound at most
  }
  require(entry.depth <= kMaxDepth && entry.tree_nodes <= kMaxTreeNodes, "too large");
  std::string name;
  switch (n.op) {
    case Op::kConst:
      break;
    case Op::kSym:
      require(n.dtype == DType::kInt64 && n.i >= 0 && n.i < static_cast<std::int64_t>(symbol_names_.size()),
              "unknown symbol");
      name = symbol_names_[static_cast<std::size_t>(n.i)];
      break;
    case Op::kCast:
      break;
    case Op::kSelect:
      require(args[0]->dtype == DType::kBool && args[1]->dtype == n.dtype && args[2]->dtype == n.dtype,
              "types don't fit");
      break;
    case Op::kIsNaN:
    case Op::kIsInf:
      require(n.dtype == DType::kBool, "types don't fit");
      break;
    default:
      require(args[0]->dtype == (is_comparison(n.op) ? args[1]->dtype : n.dtype), "types don't fit");
      require(!is_comparison(n.op) || n.dtype == DType::kBool, "types don't fit");
      require(args.size() < 2 || n.op == Op::kPow || args[0]->dtype == args[1]->dtype, "types don't fit");
  }
  // Not simplified again: kernels may have been compiled for exactly this expression.
  entry.e = make_node(n.op, n.dtype, std::move(args), n.i, n.f, nullptr, std::move(name));
  entries_.push_back(std::move(entry));
}

const Expr& TableReader::at(std::uint64_t position) const {
  require(position < entries_.size(), "an expression does not exist");
  return entries_[position].e;
}

}  // namespace sardonyx
