// Custom operators: kernels in CUDA or HIP, or element-wise expressions, which models use by name.
// docs/custom-operators.md explains each field by example. Sources run with the permissions of the program.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace sardonyx {

/// A launch of a kernel. Numbers are formulas of dims, attributes and names of CustomOperator::let.
struct CustomKernel {
  std::string kernel;                  ///< "rope<T>": the kernel, with types and {constants} as template arguments
  std::vector<std::string> grid;       ///< blocks along x, y, z; missing ones are 1
  std::vector<std::string> block;      ///< threads of a block along x, y, z; missing ones are 1
  std::string shared = "0";            ///< bytes of dynamic shared memory
  std::vector<std::string> arguments;  ///< names of tensors, and formulas; empty: inputs, then outputs
};

/// An operator. It has launches with a source, or an expression.
struct CustomOperator {
  std::string name;                 ///< "com.example::Rope": domain and operator
  std::vector<std::string> inputs;  ///< "x: T[batch, seq, dim]"; "bias?: T[dim]" may be omitted
  std::vector<std::string>
      outputs;  ///< "y: T[batch, seq, dim]"; "count: int32[1] = 0" is initialised before the first launch
  std::vector<std::string> attributes;  ///< "eps: float = 1e-5", "axis: int"; int, float, string, ints or floats
  std::vector<std::string> workspace;   ///< declared like outputs; temporary
  std::vector<std::string> let;         ///< "blocks = ceildiv(seq, 256)"
  std::vector<std::string> require;     ///< "dim % 2 == 0"
  std::string source;                   ///< the text; errors name its lines as those of `file`
  std::filesystem::path file;           ///< of the source; #include "name" is relative to its directory; may be empty
  std::vector<CustomKernel> launches;   ///< in order
  std::string expression;               ///< of an element-wise operator: "x * sigmoid(1.702 * x)"
};

/// Registers the operator for models that are compiled from now on, in place of one of the same name. Throws
/// Error(kInvalidArgument), naming the field, if the definition is malformed. The source is compiled with a model.
/// Thread-safe.
void register_custom_operator(const CustomOperator& op);
/// Registers the operators of a TOML file. Throws Error: kIo, kInvalidArgument naming file and line.
void register_custom_operators(const std::filesystem::path& file);
/// The names of the registered operators.
std::vector<std::string> custom_operators();

}  // namespace sardonyx
