#include "support/dtype.h"

#include <gtest/gtest.h>

#include "support/error.h"

namespace sardonyx {
namespace {

TEST(DType, NamesAndOnnxNumbersRoundTrip) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType t = static_cast<DType>(i);
    DType back;
    ASSERT_TRUE(parse_dtype(name(t), back));
    EXPECT_EQ(back, t);
    EXPECT_EQ(from_onnx(to_onnx(t)), t);
    EXPECT_GE(size_of(t) * 8, static_cast<std::size_t>(bits_of(t)));
  }
}

TEST(DType, StringsAreRefusedWithARemedy) {
  try {
    from_onnx(8);
    FAIL() << "string tensors must be refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUnsupported);
    EXPECT_NE(std::string(e.what()).find("outside the model"), std::string::npos);
  }
}

}  // namespace
}  // namespace sardonyx
