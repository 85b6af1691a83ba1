// build/bin/sardonyx. Every error ends here: one line on stderr, and the kind of error as the exit code.
#include <fmt/core.h>

#include <csignal>
#include <new>
#include <string>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/tensorflow.h"
#include "cli/terminal.h"
#include "support/error.h"

namespace {

int report(sardonyx::ErrorKind kind, std::string message) {
  for (std::size_t at; (at = message.find('\n')) != std::string::npos;) message.replace(at, 1, "; ");
  fmt::print(stderr, "sardonyx: {}\n", sardonyx::cli::printable(message));
  return static_cast<int>(kind);
}

void dispatch(const sardonyx::cli::Arguments& o) {
  using namespace sardonyx::cli;
  switch (o.command) {
    case Arguments::Command::kHelp:
      return;
    case Arguments::Command::kRun:
      return run_command(o);
    case Arguments::Command::kVerify:
      return verify_command(o);
    case Arguments::Command::kPerf:
      return perf_command(o);
    case Arguments::Command::kTune:
      return tune_command(o);
    case Arguments::Command::kCompile:
      return compile_command(o);
    case Arguments::Command::kInspect:
      return inspect_command(o);
    case Arguments::Command::kDevices:
      return devices_command(o);
    case Arguments::Command::kCache:
      return cache_command(o);
    case Arguments::Command::kLanguage:
      return language_command(o);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using sardonyx::ErrorKind;
  try {
    sardonyx::cli::Arguments arguments = sardonyx::cli::parse_arguments(argc, argv);
    const auto converted = sardonyx::cli::convert_tensorflow(arguments);  // the file lives as long as the command
    dispatch(arguments);
    if (std::fflush(stdout) != 0) return report(ErrorKind::kIo, "stdout can't be written");
    return 0;
  } catch (const sardonyx::Error& e) {
    std::fflush(stdout);
    return report(e.kind(), e.what());
  } catch (const std::bad_alloc&) {
    return report(ErrorKind::kDevice, "out of memory; use smaller inputs or fewer threads");
  } catch (const std::exception& e) {
    return report(ErrorKind::kInternal, std::string("internal error: ") + e.what());
  }
}
