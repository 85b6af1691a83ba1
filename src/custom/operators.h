// The operators that users have defined (sardonyx/custom_operator.h).
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/op.h"
#include "sardonyx/custom_operator.h"

namespace sardonyx {

/// A set of them. Not changed once models use it.
class CustomOperators {
 public:
  /// Adds an operator, or replaces the one of its name. Throws Error(kInvalidArgument), naming the field.
  void add(const CustomOperator& op);
  /// Adds those of a TOML file. Throws Error: kIo, kInvalidArgument with file and line.
  void add_file(const std::filesystem::path& file);

  const OpDef* find(std::string_view domain, std::string_view name) const;
  /// The definition by the operator's full name; null if there is none.
  const CustomOperator* definition(std::string_view name) const;
  std::vector<std::string> names() const;
  /// Distinguishes sets of operators that compile to different code.
  std::string fingerprint() const;

 private:
  struct Entry {
    CustomOperator definition;
    OpDef op;
  };
  std::map<std::string, Entry, std::less<>> all_;
};

/// The operators that register_custom_operator() has made known, and those of `file`, if it is not empty. Throws as
/// CustomOperators::add_file().
std::shared_ptr<const CustomOperators> known_custom_operators(const std::filesystem::path& file);

/// An operator of Sardonyx or of `custom` (null: none); null if there is none.
const OpDef* find_operator(std::string_view domain, std::string_view name, const CustomOperators* custom);

}  // namespace sardonyx
