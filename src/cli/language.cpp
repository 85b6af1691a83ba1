// sardonyx generate, serve, convert-gguf, quantize, evaluate and onnxruntime: this process is replaced by the Python
// package, which does the work.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/html_page.h"
#include "cli/tensorflow.h"
#include "support/error.h"

namespace sardonyx::cli {
void language_command(const Arguments& arguments) {
  std::vector<std::string> words = {arguments.verify.python, "-c", std::string(asset("language.py")), package_folder()};
  words.insert(words.end(), arguments.passed_on.begin(), arguments.passed_on.end());
  std::vector<char*> argv;
  for (std::string& a : words) argv.push_back(a.data());
  argv.push_back(nullptr);
  std::fflush(stdout);
  ::execvp(argv[0], argv.data());
  fail(ErrorKind::kUnsupported,
       "`sardonyx {}` runs in Python, and '{}' can't be started ({}); name one that has the package sardonyx with "
       "--python or SARDONYX_PYTHON",
       arguments.passed_on.front(), arguments.verify.python, std::strerror(errno));
}

}  // namespace sardonyx::cli
