// Small models for the tests of the C++ interface.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "sardonyx/sardonyx.h"

namespace sardonyx {

template <typename T>
Tensor tensor(DType dtype, std::vector<std::int64_t> dims, const std::vector<T>& values) {
  Tensor t = Tensor::allocate(dtype, std::move(dims));
  EXPECT_EQ(static_cast<std::size_t>(t.elements()), values.size());
  std::copy(values.begin(), values.end(), t.as<T>().begin());
  return t;
}

inline Tensor floats(std::vector<std::int64_t> dims, const std::vector<float>& values) {
  return tensor<float>(DType::kFloat32, std::move(dims), values);
}

inline std::vector<float> values(const Tensor& t) {
  const auto s = t.as<float>();
  return {s.begin(), s.end()};
}

/// y[batch, 2] = relu(x[batch, 3] . w + b) with small integers, so that results are exact.
inline GraphBuilder dense() {
  GraphBuilder g;
  const std::string x = g.input("x", DType::kFloat32, {"batch", 3});
  const std::string w = g.constant(floats({3, 2}, {1, -1, 2, -2, 3, -3}));
  const std::string b = g.constant(floats({2}, {1, 20}));
  g.output(g.op("Relu", {g.op("Add", {g.op("MatMul", {x, w}), b})}), "y");
  return g;
}

/// dense() of x with elements 0, 1, 2, ...
inline std::pair<Tensor, std::vector<float>> dense_case(std::int64_t batch) {
  Tensor x = Tensor::allocate(DType::kFloat32, {batch, 3});
  std::vector<float> y;
  for (std::int64_t k = 0; k < batch; ++k) {
    float sum = 0;
    for (int j = 0; j < 3; ++j) {
      x.as<float>()[static_cast<std::size_t>(3 * k + j)] = static_cast<float>(3 * k + j);
      sum += static_cast<float>((j + 1) * (3 * k + j));
    }
    y.push_back(std::max(sum + 1, 0.0f));
    y.push_back(std::max(-sum + 20, 0.0f));
  }
  return {x, y};
}

/// Expects an Error of `kind` whose message has every one of `words`.
template <typename F>
void expect_error(ErrorKind kind, std::initializer_list<const char*> words, F&& f) {
  try {
    f();
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << e.what();
    for (const char* w : words) EXPECT_THAT(std::string(e.what()), testing::HasSubstr(w));
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << "one line: " << e.what();
  }
}

}  // namespace sardonyx
