// The command line's syntax and help. The only file that knows CLI11 and the environment.
#include "cli/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <set>

#include "compile/cache.h"
#include "device/device.h"
#include "options/compile_options.h"
#include "support/error.h"

namespace sardonyx::cli {
namespace {

const char* const kExitCodes =
    "Exit codes: 0 success, 1 a bug in Sardonyx, 2 wrong usage, 3 malformed model, 4 unsupported, 5 file, 6 compiler,\n"
    "7 device, 8 results differ. Errors are one line on stderr; docs/command-line.md has more.";

const char* environment(const char* name) {
  const char* v = std::getenv(name);
  return v && *v ? v : nullptr;
}

using Dims = std::map<std::string, std::int64_t>;

class Parser {
 public:
  Arguments parse(int argc, char** argv) {
    app_.description("Sardonyx compiles ONNX models and runs them.");
    app_.footer(std::string("Examples:\n"
                            "  sardonyx run model.onnx --dim batch=2                  run on generated inputs\n"
                            "  sardonyx run model.onnx --input x=image.npy --output y.npz\n"
                            "  sardonyx verify model.onnx --bisect                    compare with ONNX Runtime\n"
                            "  sardonyx perf model.onnx --html report.html            measure, with a chart\n"
                            "  sardonyx inspect model.onnx --html graph.html          see the compiled model\n\n") +
                kExitCodes);
    app_.require_subcommand(1);
    app_.set_version_flag("--version", SARDONYX_VERSION);
    app_.get_formatter()->column_width(34);
    add_run();
    add_verify();
    add_perf();
    add_tune();
    add_compile();
    add_inspect();
    add_devices();
    add_cache();
    app_.add_subcommand("generate", "answer prompts with a language model; --chat for a conversation");
    app_.add_subcommand("serve", "answer requests over HTTP with a language model or other models");
    app_.add_subcommand("convert-gguf", "make a language model's folder from a GGUF file");
    app_.add_subcommand("quantize",
                        "quantise a model to int8, fp8 or int4 with typical inputs, or make a calibration table");
    app_.add_subcommand("evaluate", "measure the error of a model, or of a precision, against a reference on data");
    app_.add_subcommand("onnxruntime",
                        "make plain `import onnxruntime` run AMD's providers with Sardonyx: enable, disable, status");
    if (language_arguments(argc, argv)) return o_;
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
      if (e.get_exit_code() == 0) {
        app_.exit(e, std::cout, std::cerr);
        return {};
      }
      std::string command = "sardonyx";
      for (const CLI::App* s : app_.get_subcommands()) command += " " + s->get_name();
      fail(ErrorKind::kInvalidArgument, "{}; `{} --help` shows how it is used", e.what(), command);
    }
    finish();
    return o_;
  }

 private:
  CLI::App* command(const char* name, Arguments::Command id, const char* description, const char* examples) {
    CLI::App* s = app_.add_subcommand(name, description);
    s->footer(std::string("Examples:\n") + examples);
    s->parse_complete_callback([this, id] { o_.command = id; });
    s->add_flag("-q,--quiet", o_.quiet, "show no progress");
    return s;
  }
  // An option of the table in sardonyx/compile_options.h: its flag sets the field.
  void table_option(CLI::App* s, const OptionInfo& o) {
    const std::string flag(o.flag), long_flag = flag.substr(flag.rfind("--"));
    const auto set = [this, &o, long_flag](const std::string& text) {
      given_.insert(&o);
      try {
        set_option(o_.model.compile, o, long_flag, text);
      } catch (const Error& e) {
        throw CLI::ValidationError(e.what(), CLI::ExitCodes::ValidationError);  // the caller adds how to get help
      }
    };
    std::string help(o.help);
    const std::string fallback = default_text(o);
    if (!o.environment.empty())
      help += fmt::format(" (default: ${}, else {})", o.environment, fallback);
    else if (!fallback.empty() && !std::holds_alternative<bool sardonyx::Options::*>(o.field))
      help += fmt::format(" (default: {})", fallback);
    if (const auto* field = std::get_if<bool sardonyx::Options::*>(&o.field)) {
      s->add_flag_callback(flag, [this, field] { o_.model.compile.** field = !(sardonyx::Options().**field); }, help);
    } else if (std::holds_alternative<Dims sardonyx::Options::*>(o.field)) {
      s->add_option_function<std::vector<std::string>>(
           flag, [set](const std::vector<std::string>& texts) { std::for_each(texts.begin(), texts.end(), set); }, help)
          ->type_name(std::string(o.placeholder))
          ->allow_extra_args(false)
          ->take_all();
    } else {
      s->add_option_function<std::string>(flag, set, help)->type_name(std::string(o.placeholder));
    }
  }
  void model_options(CLI::App* s, bool required = true) {
    s->add_option("model", o_.model.file,
                  "an ONNX or TFLite file, a program that `sardonyx compile -o` wrote, or, with Python's tensorflow, a "
                  "SavedModel folder, a Keras file or a frozen graph")
        ->required(required)
        ->type_name("MODEL");
    s->add_option("--dim", dims_,
                  "size of a symbolic dim, for inputs that are generated: --dim batch=4 --dim length=128")
        ->type_name("NAME=N")
        ->allow_extra_args(false)
        ->take_all();
    s->add_option("--tensorflow-input", o_.tensorflow.inputs,
                  "an input of a TensorFlow model and its shape, ? for symbolic dims; a frozen graph is cut there: "
                  "--tensorflow-input x:1,224,224,3")
        ->type_name("NAME[:SHAPE]")
        ->allow_extra_args(false)
        ->take_all();
    s->add_option("--tensorflow-output", o_.tensorflow.outputs,
                  "an output of a frozen graph (default: nodes that no other node reads)")
        ->type_name("NAME")
        ->allow_extra_args(false)
        ->take_all();
    s->add_option("--signature", o_.tensorflow.signature,
                  "signature of a SavedModel (default: serving_default, or the only one)")
        ->type_name("NAME");
    for (const OptionInfo& o : kOptions)
      if (!o.flag.empty()) table_option(s, o);
  }
  // Takes options of `command` that are not given from the environment.
  void read_environment(const CLI::App* command) {
    for (const OptionInfo& o : kOptions) {
      if (o.environment.empty() || given_.count(&o)) continue;
      if (!command || !command->get_option_no_throw(std::string(o.flag.substr(o.flag.rfind("--"))))) continue;
      const char* text = std::getenv(std::string(o.environment).c_str());
      if (text && (*text || o.empty_means_none)) {
        set_option(o_.model.compile, o, o.environment, text);
        given_.insert(&o);
      }
    }
  }
  void input_options(CLI::App* s) {
    s->add_option(
         "-i,--input", o_.input.files,
         "an input from a .npy or .pb file, or several from an .npz file or a folder of input_0.pb, input_1.pb ...")
        ->type_name("[NAME=]FILE")
        ->allow_extra_args(false)
        ->take_all();
    s->add_option("--fill", o_.input.fill, "an input with one value for all elements: --fill sr=16000")
        ->type_name("NAME=VALUE")
        ->allow_extra_args(false)
        ->take_all();
    s->add_option("--range", o_.input.range, "an input with random values in [LOW, HIGH]: --range input_ids=0:30521")
        ->type_name("NAME=LOW:HIGH")
        ->allow_extra_args(false)
        ->take_all();
    s->add_option("--seed", o_.input.seed, "seed of generated inputs (default: 0)")->type_name("N");
  }

  void add_run() {
    CLI::App* s = command(
        "run", Arguments::Command::kRun, "run a model once and show its outputs",
        "  sardonyx run model.onnx                                    generated inputs\n"
        "  sardonyx run model.onnx --dim batch=4 --seed 1             with this size and seed\n"
        "  sardonyx run bert.onnx --dim batch=1 --dim seq=128 --range input_ids=0:30521 --fill attention_mask=1\n"
        "  sardonyx run model.onnx -i x=x.npy -o probabilities=p.npy  from and to files\n"
        "  sardonyx run model.onnx -i inputs.npz -o outputs.npz       all inputs and outputs\n"
        "  sardonyx run model.onnx -i test_data_set_0                 inputs in the layout of ONNX's test data\n"
        "  sardonyx run saved_model/ --dim batch=2                    a TensorFlow model; also .keras, .h5, .tflite\n"
        "  sardonyx run frozen.pb --tensorflow-input x:1,224,224,3 --tensorflow-output softmax\n"
        "  sardonyx run model.onnx --dim batch=64 --devices cuda:0,cuda:1   32 rows of the batch on each\n\n"
        "Inputs that are not given are generated: floating-point ones between -1 and 1, integers and booleans 0 or 1.");
    model_options(s);
    input_options(s);
    s->add_option("-o,--output", o_.run.outputs, "save an output as .npy or .pb, or all in an .npz file")
        ->type_name("[NAME=]FILE")
        ->allow_extra_args(false)
        ->take_all();
    s->add_option("--save-inputs", o_.run.save_inputs, "save the inputs for later runs")->type_name("FILE.npz");
    s->add_flag("--profile", o_.run.profile, "show the time of each kernel");
    s->add_option("--devices", o_.run.devices,
                  "divide the batch among several devices: cuda:0,cuda:1 (instead of --device)")
        ->delimiter(',')
        ->type_name("NAME,...");
  }
  void add_verify() {
    CLI::App* s =
        command("verify", Arguments::Command::kVerify, "compare every output with ONNX Runtime's CPU provider",
                "  sardonyx verify model.onnx --dim batch=2\n"
                "  sardonyx verify model.onnx --bisect                   find the first value that differs\n"
                "  sardonyx verify model.onnx --reference test_data_set_0  against output_0.pb ... of a folder\n"
                "  sardonyx verify model.onnx --python .venv/bin/python  with that Python's onnxruntime\n\n"
                "An element matches if |ours - reference| <= atol + rtol * |reference|. rtol depends on the type (1e-4 "
                "for float32); atol is\n"
                "rtol times the root mean square of the reference tensor. Integers must be equal. "
                "docs/command-line.md has the reasons.");
    model_options(s);
    input_options(s);
    s->add_flag("--bisect", o_.verify.bisect, "compare every intermediate value, in the model's order");
    s->add_option("--reference", o_.verify.reference,
                  "folder with output_0.pb ..., and inputs input_0.pb ... unless --input is given")
        ->type_name("DIR");
    s->add_option("--python", o_.verify.python,
                  "the Python whose onnxruntime is the reference (default: $SARDONYX_PYTHON, else python3)")
        ->envname("SARDONYX_PYTHON");
    s->add_option("--rtol", rtol_, "relative tolerance, for all types")->type_name("X");
    s->add_option("--atol", atol_, "absolute tolerance, for all types")->type_name("X");
    s->add_option("--json", o_.verify.json, "write the comparison; - for stdout")->type_name("FILE");
  }
  void add_perf() {
    CLI::App* s = command("perf", Arguments::Command::kPerf, "measure a model's speed and memory",
                          "  sardonyx perf model.onnx --dim batch=1\n"
                          "  sardonyx perf model.onnx --runs 200 --threads 1\n"
                          "  sardonyx perf model.onnx --html report.html --json report.json\n"
                          "  sardonyx perf model.onnx --device sim:gfx942 --timing --sample");
    model_options(s);
    input_options(s);
    s->add_option("--warmup", o_.perf.warmup, "runs that are not measured (default: 5)")
        ->check(CLI::Range(0, 1000000))
        ->type_name("N");
    s->add_option("--runs", o_.perf.runs, "measured runs (default: as many as fit in --seconds, at least 10)")
        ->check(CLI::Range(1, 10000000))
        ->type_name("N");
    s->add_option("--seconds", o_.perf.seconds, "how long to measure (default: 5)")
        ->check(CLI::Range(0.0, 1e6))
        ->type_name("S");
    s->add_flag("--resident", o_.perf.resident,
                "keep inputs and outputs in GPU memory; also measures runs back to back");
    CLI::Option* timing = s->add_flag("--timing", o_.perf.timing,
                                      "estimate one run's time on an AMD GPU: with --device sim:gfx942 and the like");
    s->add_flag("--sample", o_.perf.sample,
                "with --timing: execute only the workgroups that the estimate needs, with wrong results; not for "
                "models whose sizes "
                "depend on data")
        ->needs(timing);
    s->add_option("--timeline", o_.perf.timeline, "with --timing: write a timeline for ui.perfetto.dev")
        ->needs(timing)
        ->type_name("FILE");
    s->add_option("--top", o_.perf.top, "rows of the table of slowest kernels (default: 15)")
        ->check(CLI::Range(0, 100000))
        ->type_name("N");
    s->add_option("--json", o_.perf.json, "write all numbers; - for stdout")->type_name("FILE");
    s->add_option("--html", o_.perf.html, "write a page with charts")->type_name("FILE");
  }
  void add_tune() {
    CLI::App* s = command(
        "tune", Arguments::Command::kTune,
        "time the candidates for a model's GEMMs, convolutions and attention on a GPU, and store the times",
        "  sardonyx tune model.onnx --device cuda --precision fp16 --dim batch=8 --tuning-database my.tuning\n"
        "  sardonyx compile model.onnx --precision fp16 --tuning-database my.tuning --arch gfx942 -o model.sdx\n"
        "  sardonyx tune --tuning-database all.tuning --merge my.tuning --merge yours.tuning\n"
        "  sardonyx tune --tuning-database my.tuning --list --json rows.json");
    model_options(s, false);
    input_options(s);
    s->add_flag("--timing", o_.tune.timing,
                "estimate times on an AMD GPU instead of measuring: with --device sim:gfx942 and the like");
    s->add_flag("--quick", o_.tune.quick, "time only the three candidates with the lowest estimated cost");
    s->add_flag("--list", o_.tune.list, "list the measurements of a database");
    s->add_option("--merge", o_.tune.merge,
                  "add the measurements of another database; for equal keys the shorter time is kept")
        ->type_name("FILE")
        ->allow_extra_args(false)
        ->take_all();
    s->add_option("--json", o_.tune.json, "write the measurements; - for stdout")->type_name("FILE");
  }
  void add_compile() {
    CLI::App* s = command(
        "compile", Arguments::Command::kCompile,
        "compile a model into the cache, so that it loads quickly later, or into a file",
        "  sardonyx compile model.onnx\n"
        "  sardonyx compile model.onnx --cache-dir /srv/cache\n"
        "  sardonyx compile model.onnx -o model.sdx              with its weights: `sardonyx run model.sdx`\n"
        "  sardonyx compile model.onnx --arch gfx942 -o model.sdx    for a GPU that need not be present\n"
        "  sardonyx compile model.onnx --arch gfx942,gfx1100,sm_90 -o model.sdx    one file for all of them\n"
        "  sardonyx compile model.onnx --arch gfx942 --report    registers and instructions of its kernels\n\n"
        "A program file works with this version of Sardonyx, on CPUs that have the instructions of this one. It "
        "contains machine code: run only files that you trust.");
    model_options(s);
    input_options(s);
    s->add_option("--arch", o_.compile_arch, "GPUs to compile for, instead of the device: gfx942,gfx1100,sm_90")
        ->delimiter(',')
        ->type_name("NAME,...");
    s->add_option("-o,--output", o_.compile_output, "write the compiled program with its weights")->type_name("FILE");
    s->add_flag("--report", o_.compile_report,
                "list the resources of each GPU kernel: registers, spills, scratch, LDS, matrix instructions");
    s->add_option("--json", o_.compile_json,
                  "write statistics of the compilation (with --report also the resources of kernels); - for stdout")
        ->type_name("FILE");
  }
  void add_inspect() {
    CLI::App* s =
        command("inspect", Arguments::Command::kInspect,
                "show the compiled model: operators, kernels, memory, and nodes that are refused",
                "  sardonyx inspect model.onnx\n"
                "  sardonyx inspect model.onnx --dim batch=8             with memory for this size\n"
                "  sardonyx inspect model.onnx --kernels                 every kernel and the nodes it computes\n"
                "  sardonyx inspect model.onnx --html graph.html         the graph of kernels as a page\n"
                "  sardonyx inspect model.onnx --passes                  the graph after each pass that changed it\n"
                "  sardonyx inspect model.onnx --remarks                 what was not fused, and why\n"
                "  sardonyx inspect model.onnx --json - | jq .kernels_per_run");
    model_options(s);
    input_options(s);
    s->add_flag("--kernels", o_.inspect.kernels, "list every step of the program");
    s->add_flag("--source", o_.inspect.source, "also print the source text of each kernel");
    s->add_flag("--passes", o_.inspect.passes, "the graph as imported, and after each pass that changed it");
    s->add_flag("--remarks", o_.inspect.remarks, "what was not fused or rewritten, and why");
    s->add_option("--json", o_.inspect.json, "write everything; - for stdout")->type_name("FILE");
    s->add_option("--html", o_.inspect.html, "draw the graph with its kernels")->type_name("FILE");
  }
  void add_devices() {
    CLI::App* s = command("devices", Arguments::Command::kDevices, "list the devices that models can run on",
                          "  sardonyx devices           the CPU and the GPUs of this machine\n"
                          "  sardonyx devices --chips   all chips that code can be generated for");
    s->add_flag("--chips", o_.list_chips, "all GPU chips that code can be generated for, with their peak rates");
    s->add_option("--json", o_.chips_json, "write the table of chips as JSON; - for stdout")->type_name("FILE");
  }
  void add_cache() {
    CLI::App* s = command("cache", Arguments::Command::kCache, "show or clear the cache of compiled code",
                          "  sardonyx cache         what is in it\n"
                          "  sardonyx cache dir     where it is\n"
                          "  sardonyx cache clear   delete it");
    s->add_option("action", o_.cache_action, "stats, dir or clear (default: stats)")
        ->check(CLI::IsMember({"stats", "dir", "clear"}))
        ->type_name("ACTION");
    table_option(s, *find_option("cache_dir"));
  }

  // Python parses the options of these commands and shows their help; here they only appear in the list of commands.
  // All arguments but --python are passed on.
  bool language_arguments(int argc, char** argv) {
    const std::string_view command = argc > 1 ? argv[1] : "";
    constexpr std::array<std::string_view, 6> kPython = {"generate",    "serve",    "convert-gguf",
                                                         "onnxruntime", "evaluate", "quantize"};
    if (std::find(kPython.begin(), kPython.end(), command) == kPython.end()) return false;
    o_.command = Arguments::Command::kLanguage;
    if (const char* python = environment("SARDONYX_PYTHON")) o_.verify.python = python;
    for (int k = 1; k < argc; ++k) {
      const std::string_view a = argv[k];
      if (a.starts_with("--python="))
        o_.verify.python = a.substr(9);
      else if (a == "--python" && k + 1 < argc)
        o_.verify.python = argv[++k];
      else
        o_.passed_on.emplace_back(a);
    }
    if (o_.verify.python.empty()) o_.verify.python = "python3";
    return true;
  }

  void finish() {
    const auto commands = app_.get_subcommands();
    read_environment(commands.empty() ? nullptr : commands.front());
    sardonyx::Options sizes;
    for (const std::string& text : dims_) set_option(sizes, *find_option("dims"), "--dim", text);
    o_.model.dims = sizes.dims;
    o_.verify.rtol = rtol_;
    o_.verify.atol = atol_;
    if (!given_.count(find_option("cache_dir"))) {
      const char* xdg = environment("XDG_CACHE_HOME");
      const char* home = environment("HOME");
      o_.model.compile.cache_dir = default_cache_directory(xdg ? xdg : "", home ? home : "");
    }
    if (const char* python = environment("SARDONYX_PYTHON"); python && o_.verify.python.empty())
      o_.verify.python = python;
    if (o_.verify.python.empty()) o_.verify.python = "python3";
    if (o_.cache_action.empty()) o_.cache_action = "stats";
    for (const std::string& d : o_.run.devices)
      if (d != "host" && !is_gpu_name(d))
        fail(ErrorKind::kInvalidArgument, "--devices {}: there is no such device; `sardonyx devices` lists them", d);
    if (!o_.run.devices.empty()) o_.model.compile.device = o_.run.devices.front();
    if (o_.model.compile.device != "host" && !is_gpu_name(o_.model.compile.device) &&
        o_.command != Arguments::Command::kCache && o_.command != Arguments::Command::kDevices)
      fail(ErrorKind::kInvalidArgument, "--device {}: there is no such device; `sardonyx devices` lists them",
           o_.model.compile.device);
  }

  CLI::App app_;
  Arguments o_;
  std::vector<std::string> dims_;
  std::set<const OptionInfo*> given_;  // by arguments or the environment
  std::optional<double> rtol_, atol_;
};

}  // namespace

Arguments parse_arguments(int argc, char** argv) { return Parser().parse(argc, argv); }

}  // namespace sardonyx::cli
