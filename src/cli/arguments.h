// The command line as plain data. arguments.cpp fills it from the arguments and then from the environment; nothing else
// reads either. Options of compiling are declared in sardonyx/compile_options.h.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sardonyx/compile_options.h"

namespace sardonyx::cli {

/// The model, and how to compile it.
struct ModelArguments {
  std::filesystem::path file;
  sardonyx::Options compile;
  /// Sizes of symbolic dims, for generated inputs and for reports. The compiler knows only those in compile.dims.
  std::map<std::string, std::int64_t> dims;
};

/// How a TensorFlow model is read.
struct TensorFlowArguments {
  std::vector<std::string> inputs;   ///< "NAME:SHAPE", or "NAME" with the shape that the model declares
  std::vector<std::string> outputs;  ///< of a frozen graph
  std::string signature;             ///< of a SavedModel
};

/// Sources of inputs: files first, otherwise generated.
struct InputArguments {
  std::vector<std::string> files;  ///< "FILE" or "NAME=FILE"
  std::vector<std::string> fill;   ///< "NAME=VALUE"
  std::vector<std::string> range;  ///< "NAME=LOW:HIGH"
  std::uint64_t seed = 0;
};

struct RunArguments {
  std::vector<std::string> outputs;  ///< "FILE" or "NAME=FILE"
  std::string save_inputs;
  int repeat = 1;
  bool profile = false;
  std::vector<std::string> devices;  ///< that the batch is divided among; empty: ModelArguments::device
};

struct VerifyArguments {
  bool bisect = false;
  std::filesystem::path reference;  ///< folder of ONNX test data; empty: ONNX Runtime
  std::string python;               ///< SARDONYX_PYTHON; reads TensorFlow models too
  std::optional<double> rtol, atol;
  std::string json;
};

struct PerfArguments {
  int warmup = 5;
  int runs = 0;  ///< 0: as many as fit in `seconds`, at least 10
  double seconds = 5;
  int top = 15;         ///< rows of the table of kernels
  bool timing = false;  ///< the simulated GPU's clock, of one run
  bool sample = false;  ///< with it: only what the estimate needs is executed
  std::string timeline;
  bool resident = false;  ///< inputs and outputs stay in the device's memory
  std::string json, html;
};

struct TuneArguments {
  bool quick = false;   ///< only the most promising candidates
  bool timing = false;  ///< by the simulated GPU's clock
  bool list = false;
  std::vector<std::string> merge;
  std::string json;
};

struct InspectArguments {
  bool kernels = false;  ///< the table of all kernels
  bool source = false;   ///< their source text, too
  bool passes = false;   ///< the graph after each pass that changed it
  bool remarks = false;  ///< what passes considered and did not do
  std::string json, html;
};

struct Arguments {
  enum class Command { kHelp, kRun, kVerify, kPerf, kTune, kCompile, kInspect, kDevices, kCache, kLanguage };
  Command command = Command::kHelp;
  bool quiet = false;  ///< no progress
  ModelArguments model;
  TensorFlowArguments tensorflow;
  InputArguments input;
  RunArguments run;
  VerifyArguments verify;
  PerfArguments perf;
  TuneArguments tune;
  InspectArguments inspect;
  std::string compile_json, compile_output;
  std::vector<std::string> compile_arch;
  bool compile_report = false;
  std::vector<std::string> passed_on;  ///< kLanguage: the command and its arguments, for Python
  std::string cache_action;            ///< stats, clear, dir
  bool list_chips = false;             ///< devices: the table of chips that code can be generated for
  std::string chips_json;              ///< devices: write that table here; "-": stdout
};

/// Parses the command line. Prints help and returns kHelp when that was asked for. Throws Error(kInvalidArgument).
Arguments parse_arguments(int argc, char** argv);

}  // namespace sardonyx::cli
