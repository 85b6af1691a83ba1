#include "ep/warm_up.h"

#include <cstring>

namespace sardonyx::ep {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

void warm_up(const CompiledGroup& group, const std::vector<std::int64_t>& batches, const Log& log) {
  if (batches.empty()) return;
  std::string batch;
  for (const TensorInfo& t : group.model->inputs())
    if (batch.empty() && !t.shape.empty() && !is_number(t.shape.front())) batch = t.shape.front();
  if (batch.empty()) return;
  for (const std::int64_t n : batches) {
    std::map<std::string, HostTensor> inputs;
    try {
      for (const TensorInfo& t : group.model->inputs()) {
        std::vector<std::int64_t> dims;
        for (const std::string& d : t.shape) {
          if (d != batch && !is_number(d))
            fail(ErrorKind::kUnsupported, "the dim '{}' of '{}' is not known before the first run", d, t.name);
          dims.push_back(d == batch ? n : std::stoll(d));
        }
        HostTensor zeros = Tensor::allocate(t.dtype, dims);
        std::memset(zeros.data, 0, zeros.bytes());
        inputs[t.name] = std::move(zeros);
      }
      group.model->run(inputs);
    } catch (const Error& e) {
      log.info("batch size {} is not warmed up: {}", n, e.what());
    }
  }
}

}  // namespace sardonyx::ep
