// Frozen graphs of TensorFlow. They are converted to ONNX in Python (docs/tensorflow.md), by the interpreter that
// SARDONYX_PYTHON names.
#include <dlfcn.h>

#include <cstdlib>
#include <fstream>

#include "migraphx/files.h"
#include "migraphx/guard.h"
#include "migraphx/program.h"
#include "support/process.h"

using namespace sardonyx;
using namespace sardonyx::mgx;

namespace {

namespace fs = std::filesystem;

/// Beside this library, in a wheel or a build; empty: the interpreter finds the package itself.
std::string package_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&package_folder), &info) == 0 || !info.dli_fname) return "";
  std::error_code e;
  const fs::path folder = fs::canonical(info.dli_fname, e).parent_path();
  for (const fs::path& candidate : {folder / "../../..", folder / "../../python"})
    if (fs::exists(candidate / "sardonyx" / "__init__.py", e)) return fs::weakly_canonical(candidate, e).string();
  return "";
}

constexpr const char* kScript = R"(import sys
folder = sys.argv.pop(1)
if folder: sys.path.insert(0, folder)
try:
    from sardonyx.migraphx.tensorflow import main
except ImportError as e:
    print(f"models of TensorFlow are read in Python, and {sys.executable} can't use the package sardonyx ({e}); name a Python that has it, and tensorflow, with SARDONYX_PYTHON", file=sys.stderr)
    sys.exit(1)
sys.exit(main(sys.argv[1:]))
)";

std::string last_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line, last;
  while (std::getline(in, line))
    if (!line.empty()) last = line;
  return last;
}

MigraphxProgram parse_graph(const fs::path& source, const migraphx_tf_options& options) {
  std::error_code e;
  if (!fs::is_regular_file(source, e)) fail(ErrorKind::kIo, "{}: there is no such file", source.string());
  const char* chosen = std::getenv("SARDONYX_PYTHON");
  const std::string python = chosen && *chosen ? chosen : "python3";
  const sardonyx::TemporaryFolder folder;
  const fs::path target = folder.path() / "graph.onnx", log = folder.path() / "log";
  std::vector<std::string> words = {python, "-c", kScript, package_folder(), source.string(), target.string()};
  if (options.nhwc) words.emplace_back("--nhwc");
  for (const std::string& name : options.outputs) words.push_back("--output=" + name);
  const int status = run_program(words, log);
  if (status == -1 || status == 127)
    fail(ErrorKind::kUnsupported,
         "models of TensorFlow are read in Python, and there is no Python '{}'; name one with SARDONYX_PYTHON", python);
  if (status != 0) {
    const std::string said = last_line(log);
    fail(ErrorKind::kUnsupported, "{}", said.empty() ? fmt::format("the conversion ended with {}", status) : said);
  }
  migraphx_onnx_options onnx;
  onnx.default_dim = {options.batch, options.batch, {}};
  onnx.lengths = options.dims;
  return MigraphxProgram::parse(target, onnx);
}

}  // namespace

SARDONYX_MIGRAPHX_OBJECT(tf_options)

SARDONYX_MIGRAPHX migraphx_status migraphx_tf_options_create(migraphx_tf_options** tf_options) {
  return guarded(__func__, [&] { give(tf_options, "tf_options", migraphx_tf_options{}); });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_tf_options_set_nhwc(migraphx_tf_options* tf_options, bool is_nhwc) {
  return guarded(__func__, [&] { given(tf_options, "tf_options").nhwc = is_nhwc; });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_tf_options_set_input_parameter_shape(migraphx_tf_options* tf_options,
                                                                                const char* name, std::size_t* dims,
                                                                                std::size_t dims_size) {
  return guarded(__func__, [&] {
    given_array(dims, dims_size, "dims");
    given(tf_options, "tf_options").dims[&given(name, "name")].assign(dims, dims + dims_size);
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_tf_options_set_default_dim_value(migraphx_tf_options* tf_options,
                                                                            std::size_t value) {
  return guarded(__func__, [&] { given(tf_options, "tf_options").batch = value; });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_tf_options_set_output_names(migraphx_tf_options* tf_options,
                                                                       const char** names, std::size_t names_size) {
  return guarded(__func__, [&] {
    given_array(names, names_size, "names");
    std::vector<std::string> all;
    for (std::size_t k = 0; k < names_size; ++k) all.emplace_back(&given(names[k], "names"));
    given(tf_options, "tf_options").outputs = std::move(all);
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_parse_tf(migraphx_program** out, const char* name,
                                                    migraphx_tf_options* options) {
  return guarded(__func__, [&] {
    const fs::path path = &given(name, "name");
    given(out, "out");
    give(out, "out", migraphx_program{parse_graph(path, given(options, "options"))});
  });
}

SARDONYX_MIGRAPHX migraphx_status migraphx_parse_tf_buffer(migraphx_program** out, const void* data, std::size_t size,
                                                           migraphx_tf_options* options) {
  return guarded(__func__, [&] {
    const auto* bytes = given_array(static_cast<const char*>(data), size, "data");
    given(out, "out");
    given(options, "options");
    const sardonyx::TemporaryFolder folder;
    const fs::path file = folder.path() / "graph.pb";
    std::ofstream(file, std::ios::binary).write(bytes, static_cast<std::streamsize>(size));
    give(out, "out", migraphx_program{parse_graph(file, *options)});
  });
}
