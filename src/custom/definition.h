// The parts of a CustomOperator, parsed and checked.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "custom/formula.h"
#include "ops/op.h"
#include "sardonyx/custom_operator.h"

namespace sardonyx::custom {

/// A dim of a declared tensor.
struct Dim {
  enum class Kind : std::uint8_t {
    kFormula,  ///< of an input: a new name is defined as the dim's size; any other formula must equal it
    kGroup,    ///< "rows...": any number of dims; in formulas their product
    kAny,      ///< "_", of inputs
    kCounted,  ///< "kept <= n", of outputs: memory for n elements; the kernel writes their number to the tensor `kept`
  };
  Kind kind = Kind::kFormula;
  std::string name;  ///< of a group, or of the tensor with the count
  Formula formula;   ///< of kCounted: the largest count
};

/// "x: T[batch, dim]".
struct TensorDeclaration {
  std::string text, name;
  bool optional = false;
  std::string type;            ///< "T" or "float32"; "" in operators with an expression: any
  std::optional<DType> dtype;  ///< empty: `type` is a name for any type
  bool any_shape = false;      ///< in operators with an expression
  std::vector<Dim> dims;
  std::string initial;  ///< "": memory is not initialised, "0": zeros, otherwise the input that is copied
};

struct AttributeDeclaration {
  enum class Type : std::uint8_t { kInt, kFloat, kString, kInts, kFloats };
  std::string name;
  Type type = Type::kInt;
  std::optional<Formula> fallback;
};

struct Launch {
  std::string kernel;
  std::vector<Formula> grid, block;  ///< 3 each
  Formula shared;
  std::vector<Formula> arguments;
};

struct Definition {
  std::string name, domain, op;
  std::vector<TensorDeclaration> inputs, outputs, workspace;
  std::vector<AttributeDeclaration> attributes;
  std::vector<std::pair<std::string, Formula>> let;
  std::vector<std::pair<std::string, Formula>> require;  ///< with their texts
  std::string source;                                    ///< with the text of the files that it includes
  std::vector<Launch> launches;
  std::optional<Formula> expression;
};

/// Throws Error(kInvalidArgument), naming the operator and the field; kIo if an included file can't be read.
Definition parse_definition(const CustomOperator& op);
/// Appends the operator to the graph. Throws as lower_node() (import/lower_node.h).
void lower_launches(OpContext& c, const Definition& d);    ///< launches.cpp
void lower_expression(OpContext& c, const Definition& d);  ///< expression.cpp

/// The type of this name: numpy's or C++'s ("float", "half", "int").
std::optional<DType> type_of_name(std::string_view name);
/// The C++ type of a tensor's elements in kernels; "" if C++ has none.
std::string kernel_type(DType t);

}  // namespace sardonyx::custom
