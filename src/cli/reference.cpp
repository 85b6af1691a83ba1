#include "cli/reference.h"

#include <nlohmann/json.hpp>

#include "cli/html_page.h"
#include "support/process.h"
#include "tensor_files/tensor_files.h"

namespace sardonyx::cli {
namespace {

namespace fs = std::filesystem;

// How numpy reads the raw elements; `raw` for types that numpy lacks.
std::pair<std::string, bool> numpy_type(const std::string& input, DType t) {
  if (t == DType::kBFloat16) return {"uint16", true};
  if (is_float(t) && bits_of(t) == 8) return {"uint8", true};
  if (bits_of(t) < 8 && t != DType::kBool)
    fail(ErrorKind::kUnsupported,
         "input '{}' has dtype {}, which ONNX Runtime's Python can't be given; compare with --reference DIR", input,
         name(t));
  return {std::string(name(t)), false};
}

std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const std::size_t at = text.rfind('\n');
  return at == std::string::npos ? text : text.substr(at + 1);
}

}  // namespace

Reference run_onnxruntime(const std::string& python, const fs::path& model, const Inputs& inputs,
                          const std::vector<std::string>& values, int threads) {
  const TemporaryFolder folder;
  nlohmann::json list = nlohmann::json::array();
  std::size_t k = 0;
  for (const auto& [name, t] : inputs.tensors) {
    const auto [numpy, raw] = numpy_type(name, t.dtype);
    list.push_back({{"name", name}, {"numpy", numpy}, {"raw", raw}, {"onnx", to_onnx(t.dtype)}, {"dims", t.dims}});
    write_file(folder.path() / ("in_" + std::to_string(k++) + ".bin"), {static_cast<const char*>(t.data), t.bytes()});
  }
  write_file(folder.path() / "inputs.json", list.dump());
  write_file(folder.path() / "values.json", nlohmann::json(values).dump());
  const fs::path log = folder.path() / "log";
  const int status = run_program({python, "-c", std::string(asset("reference.py")), model.string(),
                                  folder.path().string(), values.empty() ? "0" : "1", std::to_string(threads)},
                                 log);
  const auto said = [&] { return last_line(fs::exists(log) ? read_file(log) : ""); };
  if (status == -1 || status == 127)
    fail(ErrorKind::kUnsupported,
         "the reference can't run: there is no Python '{}'; name one that has onnxruntime with --python or "
         "SARDONYX_PYTHON, or compare with --reference DIR",
         python);
  if (status == 3)
    fail(ErrorKind::kUnsupported,
         "the reference can't run: {}; install it there with `{} -m pip install onnxruntime`, name another Python with "
         "--python, or compare with --reference DIR",
         said(), python);
  if (status != 0)
    fail(ErrorKind::kUnsupported, "ONNX Runtime can't run {}: {}", model.string(),
         said().empty() ? "it ended with status " + std::to_string(status) : said());
  const nlohmann::json answer = nlohmann::json::parse(read_file(folder.path() / "outputs.json"));
  Reference r;
  r.from = "ONNX Runtime " + answer.at("version").get<std::string>();
  for (const auto& o : answer.at("outputs")) {
    const std::string name = o.at("name");
    if (o.at("file").is_null())
      r.others.push_back(name);
    else
      r.tensors.emplace_back(
          name, std::move(read_tensors(folder.path() / o.at("file").get<std::string>(), nullptr)[0].second));
  }
  return r;
}

Reference read_reference(const fs::path& folder, const std::vector<std::string>& names) {
  Reference r;
  r.from = folder.string();
  r.tensors = read_test_data(folder, "output");
  if (r.tensors.size() != names.size())
    fail(ErrorKind::kInvalidArgument, "--reference {}: {} outputs (output_0.pb ...); the model has {}", folder.string(),
         r.tensors.size(), names.size());
  for (std::size_t k = 0; k < names.size(); ++k) r.tensors[k].first = names[k];
  return r;
}

}  // namespace sardonyx::cli
