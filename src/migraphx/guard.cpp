#include "migraphx/guard.h"

#include <cstdio>
#include <exception>
#include <mutex>
#include <new>
#include <set>

namespace sardonyx::mgx {
namespace {

thread_local std::string last_error;
thread_local bool quiet = false;

migraphx_status report(const char* function, const char* message, migraphx_status status) noexcept {
  if (!quiet) std::fprintf(stderr, "%s: Error: %s\n", function, message);
  try {
    last_error = std::string(function) + ": " + message;
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  return status;
}

}  // namespace

migraphx_status report_exception(const char* function) noexcept {
  try {
    throw;
  } catch (const UnknownTarget& e) {
    return report(function, e.what(), migraphx_status_unknown_target);
  } catch (const Error& e) {
    const bool caller = e.kind() == ErrorKind::kInvalidArgument;
    return report(function, e.what(), caller ? migraphx_status_bad_param : migraphx_status_unknown_error);
  } catch (const std::bad_alloc&) {
    return report(function, "out of memory", migraphx_status_unknown_error);
  } catch (const std::exception& e) {
    return report(function, e.what(), migraphx_status_unknown_error);
  } catch (...) {
    return report(function, "an exception of an unknown type", migraphx_status_unknown_error);
  }
}

void print_note(const char* function, const std::string& message) {
  std::fprintf(stderr, "%s: Note: %s\n", function, message.c_str());
}

void note_no_effect(const char* function, const std::string& why) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(function).second) print_note(function, "the option has no effect: " + why);
}

}  // namespace sardonyx::mgx

/// The message of this thread's last failed call ("" if none failed), valid until its next one. Not part of MIGraphX's
/// interface: the Python package raises it.
SARDONYX_MIGRAPHX const char* sardonyx_migraphx_last_error() { return sardonyx::mgx::last_error.c_str(); }

/// Whether this thread's failed calls print nothing: for callers that show sardonyx_migraphx_last_error() themselves.
SARDONYX_MIGRAPHX void sardonyx_migraphx_set_quiet(bool quiet) { sardonyx::mgx::quiet = quiet; }
