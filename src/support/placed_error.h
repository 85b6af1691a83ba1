// Errors that say where in a model they happened, so that whoever calls knows whether the place is in the message
// already.
#pragma once
#include <string>
#include <utility>

#include "sardonyx/error.h"

namespace sardonyx {

/// An error whose message names its place: a node of the model, a step of the program.
class PlacedError : public Error {
 public:
  PlacedError(ErrorKind kind, const std::string& message, std::string place)
      : Error(kind, message), place_(std::move(place)) {}
  const std::string& place() const { return place_; }

 private:
  std::string place_;
};

/// Throws the error that is being handled, with `place` before its message unless it is of that place.
[[noreturn]] inline void rethrow_at(const Error& error, const std::string& place) {
  const auto* placed = dynamic_cast<const PlacedError*>(&error);
  if (place.empty() || (placed && placed->place() == place)) throw;
  throw PlacedError(error.kind(), place + ": " + error.what(), place);
}

}  // namespace sardonyx
