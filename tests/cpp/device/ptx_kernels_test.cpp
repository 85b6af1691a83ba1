#include "device/ptx_kernels.h"

#include <gtest/gtest.h>

namespace sardonyx {
namespace {

constexpr const char* kText = R"(//
.version 8.0
.target sm_90a
.address_size 64
	// .globl	one                             // -- Begin function one, an .entry like others {
.shared .align 16 .b8 room[1024];
.visible .entry one(
	.param .u64 .ptr .align 1 one_param_0
)
.maxntid 256
{
	griddepcontrol.wait;
	// begin inline asm
	{
.reg .pred p; // }
mov.b32 {%rs1, %rs2}, %r1;
}
	// end inline asm
	ret;
                                        // -- End function
}
.visible .entry ones(.param .u64 x)
{
	ret;
}
.entry last()
{
	griddepcontrol.wait; }
)";

TEST(PtxKernels, EachIsATextOfItsOwn) {
  const PtxKernels k(kText);
  EXPECT_TRUE(k.has("one") && k.has("ones") && k.has("last"));
  EXPECT_FALSE(k.has("on") || k.has("like") || k.has("x"));
  const std::string one = k.text_of("one"), last = k.text_of("last");
  EXPECT_NE(one.find(".visible .entry one(\n"), std::string::npos);
  EXPECT_NE(one.find("// -- End function\n}\n"), std::string::npos);  // the block in it does not end it
  EXPECT_EQ(one.find(".entry ones"), std::string::npos);
  EXPECT_EQ(one.find(".entry last"), std::string::npos);
  EXPECT_EQ(last.find(".entry one"), std::string::npos);
  EXPECT_NE(last.find("\n.entry last()\n{\n\tgriddepcontrol.wait; }"), std::string::npos);
  for (const std::string& text : {one, last}) {
    EXPECT_EQ(text.find("//\n.version 8.0\n.target sm_90a\n"), 0u);
    EXPECT_NE(text.find("room[1024];"), std::string::npos);
  }
  EXPECT_FALSE(k.wait());
  EXPECT_TRUE(PtxKernels(last).wait());
  EXPECT_FALSE(PtxKernels("").wait());
}

TEST(PtxKernels, AnyTextMayBeGiven) {
  const std::string whole = kText;
  for (std::size_t k = 0; k <= whole.size(); ++k) {
    const PtxKernels cut(whole.substr(0, k));
    EXPECT_LE(cut.text_of("one").size(), k);
  }
  for (const char* text : {".entry ", ".entry a", "\n.entry a(){", "}}}", "/", "\n.entry a\n}", ".entry a() { // "}) {
    const PtxKernels k(text);
    EXPECT_EQ(k.text_of("b").find("\n.entry"), std::string(text).find("\n.entry")) << text;
  }
}

}  // namespace
}  // namespace sardonyx
