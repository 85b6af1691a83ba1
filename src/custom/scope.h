// The values of a definition's names for one node, and of formulas.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "custom/definition.h"
#include "ops/op.h"

namespace sardonyx::custom {

/// A value of a formula.
struct Number {
  enum class Kind : std::uint8_t { kWhole, kReal, kText };
  Kind kind = Kind::kWhole;
  Expr whole;         ///< int64
  bool known = true;  ///< kReal: `real` is the value; otherwise `text` is a C++ expression for it
  double real = 0;
  std::string text;  ///< of kText the text itself
};

class Scope {
 public:
  /// Reads the node's attributes and the shapes and types of its inputs. Throws as lower_node().
  Scope(OpContext& c, const Definition& d);

  /// `slot`: how C++ refers to a whole number that is known when the program runs ("s3"); empty: such numbers are not
  /// possible here.
  using Slot = std::function<std::string(const Expr&)>;
  Number number(const Formula& f, const Slot& slot = {}) const;
  /// A whole number, for `what`.
  Expr whole(const Formula& f, const std::string& what) const;

  DType type(const TensorDeclaration& t) const;
  /// The type that a name stands for; empty: none.
  std::optional<DType> named_type(const std::string& name) const;
  /// Shape of an output or of workspace. Counted dims have their largest sizes.
  Exprs shape(const TensorDeclaration& t) const;
  /// The dims "name...".
  const Exprs& group(const std::string& name) const;
  /// The node's input of this name; null: omitted, or there is none.
  Value* input(const std::string& name) const;

 private:
  void read_attributes();
  void match(const TensorDeclaration& t, Value* v);
  void same_dim(const TensorDeclaration& t, const Expr& known, const Expr& dim, const std::string& name);
  Number name(const std::string& name, const Slot& slot) const;
  Number call(const Formula& f, const Slot& slot) const;
  Number tensor_call(const Formula& f) const;
  Number binary(const Formula& f, const Slot& slot) const;
  Number index(const Formula& f, const Slot& slot) const;
  Number real_binary(const std::string& op, const Number& a, const Number& b, const Slot& slot) const;

  OpContext& c_;
  const Definition& d_;
  std::map<std::string, Expr> dims_;
  std::map<std::string, Exprs> groups_;
  std::map<std::string, DType> types_;
  std::map<std::string, Number> attributes_, let_;
  std::map<std::string, std::vector<Number>> lists_;
  std::map<std::string, Value*> inputs_;
};

}  // namespace sardonyx::custom
