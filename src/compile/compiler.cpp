// compile(): chooses the arguments of cc1 for each target.
#include "compile/compiler.h"

#include <llvm/Config/llvm-config.h>

#include "compile/backend.h"
#include "compile/precompiled.h"
#include "compile/ptx.h"
#include "support/error.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

// Part of cache keys. Increment it when the arguments below or the linking change.
constexpr int kRecipe = 20;

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

void append(std::vector<std::string>& to, std::initializer_list<const char*> args) {
  to.insert(to.end(), args.begin(), args.end());
}

/// Arguments of all targets. cc1 does not enable what the driver enables by default, for example the vectorisers.
std::vector<std::string> common_args(const CompileOptions& options) {
  if (options.opt_level < 0 || options.opt_level > 3)
    fail(ErrorKind::kInvalidArgument, "opt_level is {}; it must be 0 to 3", options.opt_level);
  std::vector<std::string> args = {"-x", "c++", "-std=c++20", "-O" + std::to_string(options.opt_level)};
  append(args, {"-ffreestanding", "-nostdsysteminc", "-nobuiltininc", "-I/", "-fdeprecated-macro", "-fwchar-type=int"});
  append(args, {"-fno-rtti", "-fno-threadsafe-statics", "-fgnuc-version=4.2.1", "-fvisibility=hidden"});
  // Fuses a*b+c across statements too, unless `#pragma clang fp contract(off)` forbids it. All else is strict IEEE.
  append(args, {"-ffp-contract=fast-honor-pragmas", "-ferror-limit", "20", "-fno-caret-diagnostics"});
  append(args, {"-Wno-everything", "-Werror=global-constructors"});  // constructors would never be run
  // As clang's driver does: a tenth of the time of compiling, and only names in PTX's comments change.
  append(args, {"-discard-value-names", "-disable-llvm-verifier"});
  if (options.opt_level >= 2) append(args, {"-vectorize-loops", "-vectorize-slp"});
  if (options.debug_info) append(args, {"-debug-info-kind=limited", "-dwarf-version=5"});
  for (const std::string& d : options.defines) args.push_back("-D" + d);
  return args;
}

void append_host_args(std::vector<std::string>& args, const Target& target) {
  const std::vector<std::string> words = split(target.arch, ' ');
  args.insert(args.end(), {"-triple", words[0] + "-unknown-linux-gnu"});
  if (words.size() > 1) args.insert(args.end(), {"-target-cpu", words[1]});
  if (words.size() > 2)
    for (const std::string& f : split(words[2], ',')) args.insert(args.end(), {"-target-feature", f});
  append(args, {"-mrelocation-model", "pic", "-pic-level", "2", "-mframe-pointer=none", "-mconstructor-aliases"});
}

}  // namespace

std::string compile(std::string_view source, std::span<const SourceFile> headers, const Target& target,
                    const CompileOptions& options) {
  const Target known = parse_target(target.arch);
  if (known.kind != target.kind)
    fail(ErrorKind::kInvalidArgument, "target \"{}\" does not belong to its target kind", target.arch);
  if (options.kernel_language && target.kind == TargetKind::kHost)
    fail(ErrorKind::kInvalidArgument, "kernel_language is for GPUs; \"{}\" is a CPU", target.arch);
  std::vector<std::string> args = common_args(options);
  switch (target.kind) {
    case TargetKind::kHost:
      append_host_args(args, target);
      break;
    case TargetKind::kAmdgpu:
      args.insert(args.end(), {"-triple", "amdgcn-amd-amdhsa", "-target-cpu", target.arch});
      append(args, {"-mcode-object-version=5", "-mrelocation-model", "pic", "-pic-level", "2"});
      // A level above, LLVM's back end runs another value numbering (GVN), which finds little in our kernels.
      if (options.opt_level == 3 && !options.kernel_language) args.emplace_back("-O2");
      break;
    case TargetKind::kNvptx:
      // The oldest PTX version with all of the target's instructions, so that older drivers accept it.
      args.insert(args.end(), {"-triple", "nvptx64-nvidia-cuda", "-target-cpu", target.arch, "-target-feature",
                               fmt::format("+ptx{}", chip_of(target.arch).floors.ptx)});
      break;
  }
  if (options.kernel_language)
    append(args, {"-x", target.kind == TargetKind::kNvptx ? "cuda" : "hip", "-fcuda-is-device"});
  if (target.kind != TargetKind::kHost)
    for (const std::string& d : kernel_definitions(chip_of(target.arch))) args.push_back("-D" + d);
  for (const std::string& a : options.extra_cc1) {
    if (a.starts_with("-mllvm"))
      fail(ErrorKind::kInvalidArgument, "extra_cc1 holds {}, which would change options of the whole process", a);
    args.push_back(a);
  }
  // Debug information would differ between the two ways of including a header.
  const auto precompiled = options.debug_info ? nullptr : precompiled_header(args, source, headers);
  const Emit emit = target.kind == TargetKind::kNvptx ? Emit::kAssembly : Emit::kObject;
  std::string code = compiler_backend().run_cc1(args, source, headers, emit, precompiled.get());
  if (target.kind == TargetKind::kAmdgpu) {
    if (!compiler_backend().keeps_own_registers(code, target.arch)) {
      // The forms that leave all registers to the compiler are slower.
      args.emplace_back("-DSDX_NO_OWN_REGISTERS=1");
      code = compiler_backend().run_cc1(args, source, headers, emit, nullptr);
      if (!compiler_backend().keeps_own_registers(code, target.arch))
        fail(ErrorKind::kCompile, "the compiler uses registers that a kernel for {} assigns", target.arch);
    }
    return compiler_backend().link_amd(code);
  }
  if (target.kind == TargetKind::kNvptx) {
    check_ptx(code);
    code = with_untyped_stores(with_wide_minima(with_needed_version(std::move(code))));
    if (chip_of(target.arch).has(Feature::kDependentLaunch)) code = with_early_start(code);
  }
  return code;
}

const std::string& compiler_version() {
  static const std::string version = "recipe " + std::to_string(kRecipe) + ", clang " LLVM_VERSION_STRING;
  return version;
}

}  // namespace sardonyx
