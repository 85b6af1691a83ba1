// The one exception type of the library. Every refusal says what, where and what to do.
#pragma once
#include <stdexcept>
#include <string>

namespace sardonyx {

/// Kinds of errors that a caller can act on. The numeric value is the command line's exit code.
enum class ErrorKind {
  kInternal = 1,         ///< a defect in Sardonyx
  kInvalidArgument = 2,  ///< an argument is wrong (input name, dtype, shape, option)
  kInvalidModel = 3,     ///< the model or program file is malformed
  kUnsupported = 4,      ///< well-formed, but not supported; the message says what to do instead
  kIo = 5,               ///< a file could not be read or written
  kCompile = 6,          ///< the embedded compiler refused generated code
  kDevice = 7,           ///< a device or its driver failed
  kMismatch = 8,         ///< results differ from a reference (`sardonyx verify`)
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace sardonyx
