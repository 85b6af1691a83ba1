// Attention on the host.
#include "host/attention.h"
#include "runtime/host_backend.h"

namespace sardonyx {
namespace {

class HostAttention : public PreparedStep {
 public:
  HostAttention(const AttentionStep& a, const RunState& run) : step_(a) {
    host::AttentionDesc& d = desc_;
    d.batch = run.eval(a.batch);
    d.heads = run.eval(a.heads);
    d.kv_heads = d.heads / a.group;
    d.queries = run.eval(a.queries);
    d.keys = run.eval(a.keys);
    d.head_dim = run.eval(a.head_dim);
    d.value_dim = run.eval(a.value_dim);
    d.scale = a.scale;
    d.threads = run.threads;
    empty_ = run.bytes(a.out.buffer) == 0;
    if (empty_) return;
    const auto place = [&](const HeadRef& t, host::HeadStrides& strides) {
      strides = {run.eval(t.strides[0]), run.eval(t.strides[1]), run.eval(t.strides[2]), run.eval(t.strides[3])};
      return run.eval(t.offset) * static_cast<std::int64_t>(size_of(run.info(t.buffer).dtype));
    };
    q_ = place(a.q, d.q);
    k_ = place(a.k, d.k);
    v_ = place(a.v, d.v);
    if (a.bias.buffer >= 0) {
      d.has_mask = true;
      d.mask_type = run.info(a.bias.buffer).dtype;
      mask_ = place(a.bias, d.mask);
    }
    const auto optional = [&](const HeadRef& t, bool& has, host::HeadStrides& strides) {
      has = t.buffer >= 0;
      return has ? place(t, strides) : 0;
    };
    begin_ = optional(a.begin, d.has_begin, d.begin);
    end_ = optional(a.end, d.has_end, d.end);
    sink_ = optional(a.sink, d.has_sink, d.sink);
    bool paged = false;
    host::HeadStrides pages;
    pages_ = optional(a.pages, paged, pages);
    if (paged) {
      d.page_rows = a.page_rows;
      d.pages_batch = pages.batch;
      d.k_page = run.eval(a.k_page);
      d.v_page = run.eval(a.v_page);
    }
    k_scale_ = optional(a.k_scale, d.scaled, d.k_scale);
    v_scale_ = optional(a.v_scale, d.scaled, d.v_scale);
    if (d.scaled) {
      d.float8 = run.info(a.k.buffer).dtype == DType::kFloat8E4M3FN;
      d.k_scale_page = run.eval(a.k_scale_page);
      d.v_scale_page = run.eval(a.v_scale_page);
    }
    d.softcap = a.softcap;
    d.zero_empty = a.zero_empty;
    out_ = place(a.out, d.out);
    d.out.element = 1;
    d.q.element = d.v.element = 1;
  }

  void enqueue(RunState& run) override {
    if (empty_) return;
    const auto data = [&](const HeadRef& t, std::int64_t offset) {
      return static_cast<char*>(run.at(t.buffer)) + offset;
    };
    const auto floats = [&](const HeadRef& t, std::int64_t offset) {
      return reinterpret_cast<float*>(data(t, offset));
    };
    const auto limits = [&](const HeadRef& t, std::int64_t offset) {
      return t.buffer >= 0 ? reinterpret_cast<const std::int64_t*>(data(t, offset)) : nullptr;
    };
    host::AttentionTerms terms;
    terms.begin = limits(step_.begin, begin_);
    terms.end = limits(step_.end, end_);
    terms.pages = limits(step_.pages, pages_);
    if (step_.sink.buffer >= 0) terms.sink = floats(step_.sink, sink_);
    if (desc_.scaled) {
      terms.k_scale = floats(step_.k_scale, k_scale_);
      terms.v_scale = floats(step_.v_scale, v_scale_);
    }
    host::attention(desc_, floats(step_.q, q_), floats(step_.k, k_), floats(step_.v, v_),
                    step_.bias.buffer >= 0 ? data(step_.bias, mask_) : nullptr, floats(step_.out, out_), terms);
  }
  std::string name() const override { return "attention"; }

 private:
  const AttentionStep& step_;
  bool empty_ = false;  ///< the output has no elements
  host::AttentionDesc desc_;
  std::int64_t q_ = 0, k_ = 0, v_ = 0, mask_ = 0, out_ = 0;  ///< bytes from the start of each buffer
  std::int64_t begin_ = 0, end_ = 0, sink_ = 0, pages_ = 0, k_scale_ = 0, v_scale_ = 0;
};

}  // namespace

std::unique_ptr<PreparedStep> prepare_host_attention(const AttentionStep& step, RunState& run) {
  return std::make_unique<HostAttention>(step, run);
}

}  // namespace sardonyx
