#include "toy_source.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <sstream>

#include "import/op_builder.h"

namespace sardonyx {
namespace {

struct Operator {
  std::string result, type;
  std::vector<std::string> inputs;
  OpBuilder::Attributes attributes;
};

class ToySource : public ModelSource {
 public:
  Signature signature(const std::map<std::string, std::int64_t>& dims) const override {
    return declared_signature(inputs, outputs, dims);
  }
  std::unique_ptr<Graph> import(const ImportOptions& options) const override {
    check(!released, "the weights were released");
    OpBuilder b(options);
    std::map<std::string, Value*> values = {{"-", nullptr}};
    for (const model::ValueInfo& in : inputs) values[in.name] = b.input(in);
    for (const auto& [name, tensor] : weights) values[name] = b.constant(tensor);
    for (const Operator& o : operators) {
      std::vector<Value*> operands;
      for (const std::string& name : o.inputs) operands.push_back(values.at(name));
      values[o.result] = b.op(o.type, std::move(operands), o.attributes);
    }
    for (const model::ValueInfo& out : outputs) b.output(out.name, values.at(out.name));
    return b.finish();
  }
  QuantizationReport quantize(const CalibrationTable&, DType) override {
    fail(ErrorKind::kUnsupported, "toy models can't be quantised; use precision 'fp16' or 'bf16'");
  }
  void release_weights() override {
    weights.clear();
    released = true;
  }

  std::vector<model::ValueInfo> inputs, outputs;
  std::map<std::string, Tensor> weights;
  std::vector<Operator> operators;
  bool released = false;
};

template <typename T>
std::optional<T> number(std::string_view word) {
  T v{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), v);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return v;
}

class Reader {
 public:
  explicit Reader(ToySource& out) : out_(out) {}

  void line(const std::string& text) {
    ++line_;
    std::istringstream words(text.substr(0, text.find('#')));
    words_.assign(std::istream_iterator<std::string>(words), {});
    if (words_.empty()) return;
    const bool declares = words_[0] == "input" || words_[0] == "weight" || words_[0] == "output";
    require(words_.size() >= (declares ? 2 : 3) && (declares || words_[1] == "="), "it is not a statement");
    if (words_[0] == "input")
      input();
    else if (words_[0] == "weight")
      weight();
    else if (words_[0] == "output")
      output();
    else
      operation();
  }

 private:
  void require(bool ok, const std::string& why) const {
    if (!ok) fail(ErrorKind::kInvalidModel, "line {}: {}", line_, why);
  }
  void define(const std::string& name) { require(values_.insert(name).second, name + " is defined twice"); }

  void input() {
    model::ValueInfo& in = out_.inputs.emplace_back();
    in.name = words_[1];
    define(in.name);
    require(words_.size() > 2 && parse_dtype(words_[2], in.dtype.emplace()), "an input needs a dtype");
    in.shape.emplace();
    for (std::size_t k = 3; k < words_.size(); ++k) {
      const auto size = number<std::int64_t>(words_[k]);
      require(!size || *size >= 0, "a dim is negative");
      in.shape->push_back({size, size ? "" : words_[k]});
    }
  }

  void weight() {
    define(words_[1]);
    const auto equals = std::find(words_.begin(), words_.end(), "=");
    require(equals != words_.end(), "a weight needs its elements");
    const auto count = static_cast<std::int64_t>(words_.end() - equals) - 1;
    std::vector<std::int64_t> dims;
    std::int64_t rest = count;  // what the other dims have to divide: no product of untrusted dims overflows
    for (auto w = words_.begin() + 2; w != equals; ++w) {
      dims.push_back(number<std::int64_t>(*w).value_or(0));
      require(dims.back() > 0 && rest % dims.back() == 0, fmt::format("{} elements do not fit the dims", count));
      rest /= dims.back();
    }
    require(rest == 1, fmt::format("{} elements do not fit the dims", count));
    Tensor& t = out_.weights[words_[1]] = Tensor::allocate(DType::kFloat32, dims);
    for (std::size_t k = 0; k < t.as<float>().size(); ++k) {
      const std::optional<float> x = number<float>(equals[static_cast<std::ptrdiff_t>(k) + 1]);
      require(x.has_value(), "an element is not a number");
      t.as<float>()[k] = *x;
    }
  }

  void operation() {
    Operator o{words_[0], words_[2], {}, {}};
    for (std::size_t k = 3; k < words_.size(); ++k) {
      const std::string& w = words_[k];
      const std::size_t colon = w.find(':');
      if (colon != std::string::npos)
        o.attributes[w.substr(0, colon)] = attribute(w.substr(colon + 1));
      else
        o.inputs.push_back(known(w));
    }
    define(o.result);
    out_.operators.push_back(std::move(o));
  }

  model::Attribute attribute(const std::string& text) const {
    if (const auto i = number<std::int64_t>(text)) return *i;
    if (const auto f = number<float>(text)) return *f;
    if (!text.starts_with('[')) return text;
    require(text.ends_with(']'), "a list does not end");
    std::vector<std::int64_t> list;
    std::istringstream items(text.substr(1, text.size() - 2));
    for (std::string item; std::getline(items, item, ',');) {
      require(number<std::int64_t>(item).has_value(), item + " is not an integer");
      list.push_back(*number<std::int64_t>(item));
    }
    return list;
  }

  void output() { out_.outputs.emplace_back().name = known(words_[1]); }

  const std::string& known(const std::string& name) const {
    require(values_.count(name), "there is no value " + name);
    return name;
  }

  ToySource& out_;
  int line_ = 0;
  std::vector<std::string> words_;
  std::set<std::string> values_ = {"-"};
};

}  // namespace

std::unique_ptr<ModelSource> parse_toy(std::string_view text) {
  auto source = std::make_unique<ToySource>();
  Reader reader(*source);
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) reader.line(line);
  if (source->outputs.empty()) fail(ErrorKind::kInvalidModel, "the model has no output");
  return source;
}

}  // namespace sardonyx
