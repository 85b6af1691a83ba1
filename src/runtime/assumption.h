// Thrown when a run contradicts an assumption under which the program was compiled.
#pragma once
#include <string>

#include "support/error.h"

namespace sardonyx {

/// The sizes differ from those assumed (CheckOp::assumption): the program must be compiled for these.
class AssumptionFailed : public Error {
 public:
  explicit AssumptionFailed(const std::string& message) : Error(ErrorKind::kInvalidArgument, message) {}
};

}  // namespace sardonyx
