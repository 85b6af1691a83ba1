// A program compiled under an assumption that a run does not meet.
#pragma once
#include <string>

#include "support/error.h"

namespace sardonyx {

/// The program was compiled for other sizes than these (CheckOp::assumption): compile it for these.
class AssumptionFailed : public Error {
 public:
  explicit AssumptionFailed(const std::string& message) : Error(ErrorKind::kInvalidArgument, message) {}
};

}  // namespace sardonyx
