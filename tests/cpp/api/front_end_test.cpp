// A second front end: a ModelSource for a toy text format. Also how Model compiles variants while other threads run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <sstream>

#include "api/model.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

// One statement a line:
//   input NAME DIM         a float32 vector; DIM is a number or a symbol
//   index NAME DIM         an int64 vector
//   add NAME A B           sum of two values
//   scale NAME INDEX A     A times the first element of INDEX, whose value must be known to compile
//   output NAME
class ToySource : public ModelSource {
 public:
  explicit ToySource(std::string text) : text_(std::move(text)) {}

  Signature signature(const std::map<std::string, std::int64_t>& dims) const override {
    Signature s;
    for (const std::vector<std::string>& w : statements()) {
      TensorInfo t;
      if (w[0] == "output") t.name = w[1], s.outputs.push_back(t);
      if (w[0] != "input" && w[0] != "index") continue;
      const auto fixed = dims.find(w[2]);
      t.name = w[1];
      t.dtype = w[0] == "index" ? DType::kInt64 : DType::kFloat32;
      t.shape = {fixed == dims.end() ? w[2] : std::to_string(fixed->second)};
      s.inputs.push_back(t);
      if (!is_number(w[2])) s.dims.insert(w[2]);
    }
    return s;
  }

  std::unique_ptr<Graph> import(const ImportOptions& options) const override {
    auto g = std::make_unique<Graph>();
    std::map<std::string, Value*> values;
    for (const std::vector<std::string>& w : statements()) {
      if (w[0] == "input") {
        values[w[1]] = g->add_input(w[1], DType::kFloat32, {dim(*g, w[2], options)});
      } else if (w[0] == "add") {
        values[w[1]] = tensor::binary(*g, Op::kAdd, values.at(w[2]), values.at(w[3]));
      } else if (w[0] == "scale") {
        const auto known = options.values.find(w[2]);
        if (known == options.values.end()) throw NeedInput{w[2], NeedInput::kValue, "it is the scale"};
        const double k = static_cast<double>(known->second.as<std::int64_t>()[0]);
        values[w[1]] = tensor::binary(*g, Op::kMul, values.at(w[3]), tensor::scalar(*g, k, DType::kFloat32));
      } else if (w[0] == "output") {
        g->outputs.push_back(values.at(w[1]));
        g->output_names.push_back(w[1]);
      }
    }
    return g;
  }

  QuantizationReport quantize(const CalibrationTable&, DType) override {
    fail(ErrorKind::kUnsupported, "toy models can't be quantised");
  }
  void release_weights() override {}

 private:
  static bool is_number(const std::string& s) { return s.find_first_not_of("0123456789") == std::string::npos; }
  static Expr dim(Graph& g, const std::string& text, const ImportOptions& options) {
    if (is_number(text)) return Expr(std::int64_t{std::stoll(text)});
    const auto fixed = options.dims.find(text);
    return fixed == options.dims.end() ? g.symbols().named_dim(text) : Expr(fixed->second);
  }
  std::vector<std::vector<std::string>> statements() const {
    std::vector<std::vector<std::string>> out;
    std::istringstream lines(text_);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      out.emplace_back();
      for (std::string w; words >> w;) out.back().push_back(w);
    }
    return out;
  }

  std::string text_;
};

Tensor index(std::int64_t v) {
  Tensor t = Tensor::allocate(DType::kInt64, {1});
  t.as<std::int64_t>()[0] = v;
  return t;
}

Tensor floats(const std::vector<float>& elements) {
  Tensor t = Tensor::allocate(DType::kFloat32, {static_cast<std::int64_t>(elements.size())});
  std::copy(elements.begin(), elements.end(), t.as<float>().begin());
  return t;
}

std::vector<float> values(const Tensor& t) {
  const auto s = t.as<float>();
  return {s.begin(), s.end()};
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

std::unique_ptr<Model> toy(const std::string& text, const Options& options = {}) {
  return std::make_unique<Model>(std::make_unique<ToySource>(text), options);
}

const char* const kScale = "input x n\nindex k 1\nscale y k x\noutput y";

TEST(FrontEnd, AToyFormatRuns) {
  const auto m = toy("input a n\ninput b n\nadd c a b\nadd d c a\noutput d");
  EXPECT_EQ(m->symbols(), std::vector<std::string>{"n"});
  EXPECT_EQ(m->output_names(), std::vector<std::string>{"d"});
  const auto out = m->run({{"a", floats({1, 2, 3})}, {"b", floats({10, 20, 30})}});
  EXPECT_EQ(values(out.at(0)), (std::vector<float>{12, 24, 36}));
}

TEST(FrontEnd, DimsAreFixedByName) {
  Options o;
  o.dims["n"] = 2;
  EXPECT_EQ(toy("input a n\nadd b a a\noutput b", o)->inputs()[0].shape, std::vector<std::string>{"2"});
  o.dims["m"] = 2;
  EXPECT_THAT(message_of([&] { toy("input a n\nadd b a a\noutput b", o); }),
              testing::AllOf(testing::HasSubstr("'m'"), testing::HasSubstr("its dims are: n")));
}

TEST(FrontEnd, WhatItCannotDoIsRefused) {
  const auto m = toy("input a n\nadd b a a\noutput b");
  EXPECT_THAT(message_of([&] { m->nodes(); }), testing::HasSubstr("another format"));
  EXPECT_TRUE(m->metadata().empty());
}

TEST(FrontEnd, AProgramForEachValue) {
  const auto m = toy(kScale);
  EXPECT_EQ(m->program_count(), 0u);
  for (const std::int64_t k : {2, 3, 2})
    EXPECT_EQ(values(m->run({{"x", floats({1, 5})}, {"k", index(k)}}).at(0)),
              (std::vector<float>{static_cast<float>(k), static_cast<float>(5 * k)}));
  EXPECT_EQ(m->program_count(), 2u);
}

TEST(Variants, OthersRunWhileOneIsCompiled) {
  std::atomic<bool> block = false;
  std::promise<void> compiling;
  std::promise<void> proceed;
  Options o;
  o.progress = [&](const Progress& p) {
    if (p.stage == "importing" && block.exchange(false)) {
      compiling.set_value();
      proceed.get_future().wait();
    }
  };
  const auto m = toy(kScale, o);
  const auto run = [&](std::int64_t k) { return values(m->run({{"x", floats({1})}, {"k", index(k)}}).at(0)).at(0); };
  EXPECT_EQ(run(2), 2);
  block = true;
  auto slow = std::async(std::launch::async, [&] { return run(3); });
  compiling.get_future().wait();
  auto compiled = std::async(std::launch::async, [&] { return run(2); });
  EXPECT_EQ(compiled.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_EQ(m->program_count(), 1u);
  proceed.set_value();
  EXPECT_EQ(compiled.get(), 2);
  EXPECT_EQ(slow.get(), 3);
  EXPECT_EQ(m->program_count(), 2u);
}

TEST(Variants, ThreadsShareThem) {
  std::atomic<int> compiled = 0;
  Options o;
  o.progress = [&](const Progress& p) { compiled += p.stage == "ready"; };
  const auto m = toy(kScale, o);
  std::vector<std::future<float>> results;
  for (int k = 0; k < 12; ++k)
    results.push_back(std::async(std::launch::async, [&m, k] {
      return values(m->run({{"x", floats({1})}, {"k", index(k % 3 + 1)}}).at(0)).at(0);
    }));
  for (int k = 0; k < 12; ++k) EXPECT_EQ(results[static_cast<std::size_t>(k)].get(), static_cast<float>(k % 3 + 1));
  EXPECT_EQ(m->program_count(), 3u);
  EXPECT_EQ(compiled, 3);
}

}  // namespace
}  // namespace sardonyx
