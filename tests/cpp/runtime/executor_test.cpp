// What an executor refuses as it is made.
#include "runtime/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/backends.h"
#include "sardonyx/error.h"

namespace sardonyx {
namespace {

using ::testing::HasSubstr;

std::string refusal(Program program) {
  try {
    const Executor executor(std::make_shared<const Program>(std::move(program)), 1, make_backend({}));
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(ErrorKind::kInvalidModel));
    return e.what();
  }
  return "";
}

TEST(Executor, RefusesUnknownRoutines) {
  const auto with_routine = [](const char* name) {
    Program p;
    p.main.steps.push_back({RoutineStep{name, {}, {}, {}, {}}, "node (Op)", {}, {}, {}});
    return p;
  };
  EXPECT_THAT(refusal(with_routine("levitate")), HasSubstr("node (Op): there is no routine 'levitate'"));
  EXPECT_EQ(refusal(with_routine("append")), "");
}

}  // namespace
}  // namespace sardonyx
