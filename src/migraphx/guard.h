// What every function of the interface does: no exception leaves it, and a failure says which function and why.
#pragma once
#include <string>
#include <string_view>

#include "migraphx/objects.h"
#include "support/error.h"

#define SARDONYX_MIGRAPHX extern "C" __attribute__((visibility("default")))

namespace sardonyx::mgx {

/// Prints "FUNCTION: Error: MESSAGE" on stderr and keeps it for sardonyx_migraphx_last_error(). To be called in a catch
/// block. Returns the status for the exception.
migraphx_status report_exception(const char* function) noexcept;

/// Prints "FUNCTION: Note: MESSAGE" on stderr.
void print_note(const char* function, const std::string& message);
/// The same for an option that has no effect, once in a process for each function.
void note_no_effect(const char* function, const std::string& why);

template <typename F>
migraphx_status guarded(const char* function, const F& f) noexcept {
  try {
    f();
    return migraphx_status_success;
  } catch (...) {
    return report_exception(function);
  }
}

/// Thrown for a target that does not exist.
class UnknownTarget : public Error {
 public:
  using Error::Error;
};

/// *p, or Error(kInvalidArgument) for a null pointer.
template <typename T>
T& given(T* p, std::string_view what) {
  if (p == nullptr) fail(ErrorKind::kInvalidArgument, "the argument '{}' is null", what);
  return *p;
}

/// A pointer to `size` elements, which may be null if there are none.
template <typename T>
T* given_array(T* p, std::size_t size, std::string_view what) {
  if (size > 0) given(p, what);
  return p;
}

/// *out = a new object, which the caller destroys.
template <typename T>
void give(T** out, std::string_view what, T value) {
  given(out, what) = new T(std::move(value));
}

/// For the functions NAME_destroy and NAME_assign_to.
template <typename T>
void assign(T* output, const T* input) {
  T copy = given(input, "input");
  given(output, "output") = std::move(copy);
}

}  // namespace sardonyx::mgx

/// MIGraphX's functions that destroy and assign objects of a type. Destroying null does nothing.
#define SARDONYX_MIGRAPHX_OBJECT(name)                                                          \
  SARDONYX_MIGRAPHX migraphx_status migraphx_##name##_destroy(migraphx_##name* object) {        \
    return sardonyx::mgx::guarded(__func__, [&] { delete object; });                            \
  }                                                                                             \
  SARDONYX_MIGRAPHX migraphx_status migraphx_##name##_assign_to(migraphx_##name* output,        \
                                                                const migraphx_##name* input) { \
    return sardonyx::mgx::guarded(__func__, [&] { sardonyx::mgx::assign(output, input); });     \
  }
