#include "cli/tensorflow.h"

#include <array>
#include <fstream>

#include "cli/html_page.h"
#include "cli/terminal.h"
#include "support/error.h"

namespace sardonyx::cli {
namespace {

namespace fs = std::filesystem;

/// A GraphDef begins with a node, its library or its versions; an ONNX model with a number.
bool is_frozen_graph(const fs::path& file) {
  if (file.extension() != ".pb") return false;
  const int first = std::ifstream(file, std::ios::binary).get();
  return first == 0x0a || first == 0x12 || first == 0x22;
}

bool is_tensorflow(const fs::path& file) {
  std::error_code e;
  if (fs::is_directory(file, e)) return true;  // no other model is a folder; the package says what is missing in it
  const fs::path extension = file.extension();
  return extension == ".keras" || extension == ".h5" || extension == ".hdf5" || is_frozen_graph(file);
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line, last;
  while (std::getline(in, line))
    if (!line.empty()) last = line;
  return last;
}

ErrorKind kind_of(int status) {
  constexpr std::array kKinds = {ErrorKind::kInvalidArgument, ErrorKind::kInvalidModel, ErrorKind::kUnsupported,
                                 ErrorKind::kIo};
  for (const ErrorKind k : kKinds)
    if (status == static_cast<int>(k)) return k;
  return ErrorKind::kUnsupported;
}

}  // namespace

std::string package_folder() {
  std::error_code e;
  const fs::path program = fs::read_symlink("/proc/self/exe", e);
  if (e) return "";
  const fs::path folder = program.parent_path().parent_path() / "python";
  return fs::exists(folder / "sardonyx" / "__init__.py", e) ? folder.string() : "";
}

std::unique_ptr<TemporaryFolder> convert_tensorflow(Arguments& arguments) {
  const TensorFlowArguments& wanted = arguments.tensorflow;
  const fs::path source = arguments.model.file;
  if (source.empty() || !is_tensorflow(source)) {
    if (!wanted.inputs.empty() || !wanted.outputs.empty() || !wanted.signature.empty())
      fail(ErrorKind::kInvalidArgument,
           "{} is not a SavedModel folder, Keras file or frozen graph: --tensorflow-input, --tensorflow-output and "
           "--signature are for these",
           source.string());
    return nullptr;
  }
  auto folder = std::make_unique<TemporaryFolder>();
  const fs::path name = source.filename().empty() ? source.parent_path().filename() : source.filename();
  const fs::path target = folder->path() / (name.string() + ".onnx"), log = folder->path() / "log";
  std::vector<std::string> words = {
      arguments.verify.python, "-c",           std::string(asset("tensorflow.py")), package_folder(),
      source.string(),         target.string()};
  for (const std::string& i : wanted.inputs) words.push_back("--tensorflow-input=" + i);
  for (const std::string& o : wanted.outputs) words.push_back("--tensorflow-output=" + o);
  if (!wanted.signature.empty()) words.push_back("--signature=" + wanted.signature);
  ProgressLine line(!arguments.quiet);
  line.show("converting " + name.string());
  const int status = run_program(words, log);
  if (status == -1 || status == 127)
    fail(ErrorKind::kUnsupported,
         "{}: TensorFlow models are read in Python, and there is no Python '{}'; name one that has sardonyx and "
         "tensorflow with SARDONYX_PYTHON",
         source.string(), arguments.verify.python);
  if (status != 0) {
    const std::string said = text_of(log);
    throw Error(kind_of(status),
                said.empty() ? fmt::format("{}: the conversion ended with status {}", source.string(), status) : said);
  }
  arguments.model.file = target;
  return folder;
}

}  // namespace sardonyx::cli
