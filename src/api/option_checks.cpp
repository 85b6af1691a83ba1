#include "api/option_checks.h"

#include <algorithm>

#include "import/quantize.h"
#include "options/compile_options.h"
#include "support/cpu_count.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

constexpr std::string_view kMakeATable =
    "make one with `sardonyx quantize MODEL --data DIR --to table -o FILE.json`, or with ONNX Runtime's calibrator "
    "(onnxruntime.quantization.create_calibrator, collect_data, then "
    "write_calibration_table(calibrator.compute_data())); docs/precision.md has more";

bool in_8_bits(const ModelOptions& o) { return o.precision == "int8" || o.precision == "fp8"; }

// The type in which GEMMs and convolutions multiply on a target ("host", "gfx942").
DType operand_type(const ModelOptions& o, const std::string& target) {
  if (o.precision == "int8") return DType::kInt8;
  std::vector<std::string_view> able;
  for (const Chip& c : all_chips())
    for (const DType t : {DType::kFloat8E4M3FNUZ, DType::kFloat8E4M3FN}) {
      if (!c.matrix(t)) continue;
      if (c.name == target) return t;
      able.push_back(c.name);
    }
  fail(ErrorKind::kUnsupported,
       "precision 'fp8' needs a GPU that multiplies 8-bit floats ({}), and this is {}; use 'int8', 'fp16' or 'bf16'",
       fmt::join(able, ", "), target);
}

}  // namespace

int thread_count(int wanted) {
  Options o;
  o.threads = wanted;
  check_values(o);
  return wanted > 0 ? wanted : cpu_count();
}

DType storage_of(const ModelOptions& o) {
  if (o.precision == "fp16") return DType::kFloat16;
  if (o.precision == "bf16") return DType::kBFloat16;
  return DType::kFloat32;
}

std::shared_ptr<const std::map<std::string, float, std::less<>>> half_ranges(const ModelOptions& o) {
  if (o.precision != "fp16" || o.calibration_table.empty()) return nullptr;
  return std::make_shared<const std::map<std::string, float, std::less<>>>(
      std::move(read_calibration(o.calibration_table).largest));
}

QuantizationReport quantize(ModelSource& source, const ModelOptions& o, const std::string& target) {
  if (const auto ranges = half_ranges(o))
    return source.nodes() ? out_of_half(*source.nodes(), *ranges) : QuantizationReport();
  if (!in_8_bits(o)) return {};
  return source.quantize(read_calibration(o.calibration_table), operand_type(o, target));
}

void check_options(const ModelOptions& o) {
  if (o.device != "host" && !is_gpu_name(o.device))
    fail(ErrorKind::kInvalidArgument, "there is no device '{}'; use 'host', this machine's CPU, or 'hip', 'cuda'",
         o.device);
  check_values(o);
  if (in_8_bits(o) && o.calibration_table.empty())
    fail(ErrorKind::kInvalidArgument, "precision '{}' needs a calibration table with the ranges of the activations: {}",
         o.precision, kMakeATable);
  if (!in_8_bits(o) && o.precision != "fp16" && !o.calibration_table.empty())
    fail(ErrorKind::kInvalidArgument,
         "a calibration table is only used with precision 'int8', 'fp8' or 'fp16', not '{}'", o.precision);
}

void check_options(const ModelOptions& options, const std::string& target) {
  check_options(options);
  half_ranges(options);
  if (!in_8_bits(options)) return;
  operand_type(options, target);
  read_calibration(options.calibration_table);
}

}  // namespace sardonyx
