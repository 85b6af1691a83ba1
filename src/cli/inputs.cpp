#include "cli/inputs.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <set>

#include "cli/arguments.h"
#include "cli/element_values.h"

namespace sardonyx::cli {
namespace {

namespace fs = std::filesystem;

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014: the finaliser of SplitMix64.
std::uint64_t mix(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

std::string names_of(const std::vector<TensorInfo>& wanted) {
  std::string out;
  for (const TensorInfo& t : wanted) out += (out.empty() ? "" : ", ") + t.name;
  return out.empty() ? "none" : out;
}

class Maker {
 public:
  Maker(const std::vector<TensorInfo>& wanted, const InputArguments& arguments,
        std::map<std::string, std::int64_t> dims)
      : wanted_(wanted), arguments_(arguments), dims_(std::move(dims)) {
    for (const auto& [name, size] : dims_) asked_.insert(name);
  }

  Inputs make() {
    for (const TensorInfo& t : wanted_) dtypes_[t.name] = t.dtype;
    for (const std::string& text : arguments_.files) add_files(text);
    for (const std::string& text : arguments_.fill)
      add_rule(text, "--fill", [&](const std::string& v) { return Rule{number(v, "--fill", text), 0, true}; });
    for (const std::string& text : arguments_.range)
      add_rule(text, "--range", [&](const std::string& v) {
        const std::size_t colon = v.find(':');
        if (colon == std::string::npos)
          fail(ErrorKind::kInvalidArgument, "--range {}: give two numbers, as in --range ids=0:99", text);
        Rule r{number(v.substr(0, colon), "--range", text), number(v.substr(colon + 1), "--range", text), false};
        if (!(r.low <= r.high))
          fail(ErrorKind::kInvalidArgument, "--range {}: the first number is larger than the second", text);
        return r;
      });
    for (const TensorInfo& t : wanted_)
      if (auto it = out_.tensors.find(t.name); it != out_.tensors.end()) learn(t, it->second);
    check_dims();
    for (const TensorInfo& t : wanted_)
      if (!out_.tensors.count(t.name)) {
        out_.tensors[t.name] = generate(t);
        out_.generated.push_back(t.name);
      }
    return std::move(out_);
  }

 private:
  struct Rule {
    double low, high;
    bool constant;
  };

  const TensorInfo* find(const std::string& name) const {
    for (const TensorInfo& t : wanted_)
      if (t.name == name) return &t;
    return nullptr;
  }

  void add(const std::string& name, Tensor tensor, const std::string& where) {
    const TensorInfo* t = find(name);
    if (!t)
      fail(ErrorKind::kInvalidArgument, "{}: the model has no input '{}'; its inputs are: {}", where, name,
           names_of(wanted_));
    if (out_.tensors.count(name)) fail(ErrorKind::kInvalidArgument, "{}: input '{}' is given twice", where, name);
    if (tensor.dtype != t->dtype)
      fail(ErrorKind::kInvalidArgument,
           "{}: input '{}' has dtype {}; the model expects {}: convert it, in numpy with .astype", where, name,
           sardonyx::name(tensor.dtype), sardonyx::name(t->dtype));
    if (t->known_rank && tensor.dims.size() != t->shape.size())
      fail(ErrorKind::kInvalidArgument, "{}: input '{}' has rank {}; the model expects {}: {}", where, name,
           tensor.dims.size(), t->shape.size(), shape_text(*t));
    out_.tensors[name] = std::move(tensor);
  }

  void add_files(const std::string& text) {
    // "NAME=FILE" if the part before some '=' is an input, otherwise all of it is a file.
    for (std::size_t eq = text.find('='); eq != std::string::npos; eq = text.find('=', eq + 1)) {
      const std::string name = text.substr(0, eq);
      if (!find(name)) continue;
      const DTypeOf one{{name, dtypes_[name]}};
      NamedTensors list = read_tensors(text.substr(eq + 1), fs::path(text).extension() == ".npz" ? nullptr : &one);
      if (list.size() != 1)
        fail(ErrorKind::kInvalidArgument,
             "--input {}: the file holds {} arrays; give --input FILE to take each by its name", text, list.size());
      return add(name, std::move(list[0].second), "--input " + text);
    }
    std::error_code ignored;
    if (text.find('=') != std::string::npos && !fs::exists(text, ignored))
      fail(ErrorKind::kInvalidArgument, "--input {}: the model has no input '{}'; its inputs are: {}", text,
           text.substr(0, text.find('=')), names_of(wanted_));
    const std::string where = "--input " + text;
    if (fs::is_directory(text, ignored)) {
      NamedTensors list = read_test_data(text, "input");
      if (list.empty()) fail(ErrorKind::kInvalidArgument, "{}: the folder holds no input_0.pb", where);
      add_by_position(std::move(list), where);
      return;
    }
    NamedTensors list = read_tensors(text, &dtypes_);
    if (fs::path(text).extension() != ".npz") {
      add_by_position(std::move(list), where);
      return;
    }
    if (list.empty())
      fail(ErrorKind::kInvalidArgument, "{}: no array in it has the name of an input; the model's inputs are: {}",
           where, names_of(wanted_));
    for (auto& [name, tensor] : list) add(name, std::move(tensor), where);
  }

  // Tensors by their own names where those are inputs, otherwise in the order of the model's inputs.
  void add_by_position(NamedTensors list, const std::string& where) {
    if (list.size() == 1 && !find(list[0].first) && wanted_.size() > 1)
      fail(ErrorKind::kInvalidArgument, "{}: which input is this? give --input NAME=FILE with one of: {}", where,
           names_of(wanted_));
    if (list.size() > wanted_.size())
      fail(ErrorKind::kInvalidArgument, "{}: {} tensors; the model has {} inputs: {}", where, list.size(),
           wanted_.size(), names_of(wanted_));
    bool named = true;
    for (const auto& [name, tensor] : list) named = named && find(name);
    for (std::size_t k = 0; k < list.size(); ++k)
      add(named ? list[k].first : wanted_[k].name, std::move(list[k].second), where);
  }

  template <typename F>
  void add_rule(const std::string& text, const char* option, F&& parse) {
    const std::size_t eq = text.rfind('=');
    const std::string name = text.substr(0, eq);
    if (eq == std::string::npos) fail(ErrorKind::kInvalidArgument, "{} {}: must be NAME=...", option, text);
    if (!find(name))
      fail(ErrorKind::kInvalidArgument, "{} {}: the model has no input '{}'; its inputs are: {}", option, text, name,
           names_of(wanted_));
    if (out_.tensors.count(name) || !rules_.emplace(name, parse(text.substr(eq + 1))).second)
      fail(ErrorKind::kInvalidArgument, "{} {}: input '{}' is given twice", option, text, name);
  }

  static double number(const std::string& v, const char* option, const std::string& text) {
    char* end = nullptr;
    errno = 0;
    const double d = std::strtod(v.c_str(), &end);
    if (v.empty() || end != v.c_str() + v.size() || errno == ERANGE)
      fail(ErrorKind::kInvalidArgument, "{} {}: '{}' is not a number", option, text, v);
    return d;
  }

  static bool constant(const std::string& dim, std::int64_t& v) {
    if (dim.empty() || dim.find_first_not_of("0123456789") != std::string::npos || dim.size() > 18) return false;
    v = std::stoll(dim);
    return true;
  }

  static std::string shape_text(const TensorInfo& t) {
    std::string s;
    for (const std::string& d : t.shape) s += (s.empty() ? "" : ", ") + d;
    return "[" + s + "]";
  }

  void learn(const TensorInfo& t, const Tensor& x) {
    if (!t.known_rank) return;
    for (std::size_t k = 0; k < t.shape.size(); ++k) {
      std::int64_t v = 0;
      if (!constant(t.shape[k], v)) dims_.emplace(t.shape[k], x.dims[k]);
    }
  }

  // All missing sizes at once.
  void check_dims() {
    std::set<std::string> known, missing;
    for (const TensorInfo& t : wanted_) {
      if (out_.tensors.count(t.name)) {
        known.insert(t.shape.begin(), t.shape.end());
        continue;
      }
      if (!t.known_rank)
        fail(ErrorKind::kInvalidArgument,
             "input '{}': the model declares no shape for it, so it can't be generated; give --input {}=FILE", t.name,
             t.name);
      for (const std::string& d : t.shape) {
        std::int64_t v = 0;
        known.insert(d);
        if (!constant(d, v) && !dims_.count(d)) missing.insert(d);
      }
    }
    std::string all, options;
    for (const std::string& d : known)
      if (std::int64_t v = 0; !constant(d, v)) all += (all.empty() ? "" : ", ") + d;
    for (const std::string& d : asked_)
      if (!known.count(d))
        fail(ErrorKind::kInvalidArgument,
             "--dim {}: no input has a dim of this name; the model's symbolic dims are: {}", d,
             all.empty() ? "none" : all);
    for (const std::string& d : missing) options += " --dim " + d + "=N";
    if (!missing.empty())
      fail(ErrorKind::kInvalidArgument,
           "inputs can't be generated without the size of each symbolic dim: add{} (or --input FILE)", options);
  }

  Tensor generate(const TensorInfo& t) {
    std::vector<std::int64_t> dims;
    std::int64_t n = static_cast<std::int64_t>(size_of(t.dtype));
    for (const std::string& d : t.shape) {
      std::int64_t v = 0;
      if (!constant(d, v)) v = dims_.at(d);
      dims.push_back(v);
      if (v > 0 && __builtin_mul_overflow(n, v, &n))
        fail(ErrorKind::kInvalidArgument, "input '{}': these dims overflow; use smaller ones", t.name);
    }
    Tensor x = allocate_tensor(t.dtype, dims);
    const auto it = rules_.find(t.name);
    const bool real = is_float(part_type(t.dtype));
    const Rule rule = it != rules_.end() ? it->second : real ? Rule{-1, 1, false} : Rule{0, 1, false};
    std::uint64_t key = mix(arguments_.seed);
    for (char c : t.name) key = mix(key ^ static_cast<unsigned char>(c));
    const std::int64_t count = x.elements() * (part_type(t.dtype) == t.dtype ? 1 : 2);
    for (std::int64_t k = 0; k < count; ++k) {
      const double u = static_cast<double>(mix(key + static_cast<std::uint64_t>(k)) >> 11) * 0x1p-53;  // [0, 1)
      const double v = rule.constant ? rule.low
                       : real        ? rule.low + (rule.high - rule.low) * u
                                     : std::floor(rule.low + (rule.high - rule.low + 1) * u);
      encode(t.dtype, x.data, k, v);
    }
    return x;
  }

  const std::vector<TensorInfo>& wanted_;
  const InputArguments& arguments_;
  std::map<std::string, std::int64_t> dims_;
  std::set<std::string> asked_;  // dims that the caller named
  DTypeOf dtypes_;
  std::map<std::string, Rule> rules_;
  Inputs out_;
};

}  // namespace

Inputs make_inputs(const std::vector<TensorInfo>& wanted, const InputArguments& arguments,
                   std::map<std::string, std::int64_t> dims) {
  return Maker(wanted, arguments, std::move(dims)).make();
}

}  // namespace sardonyx::cli
