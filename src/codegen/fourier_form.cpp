// See fourier_form.h.
#include "codegen/fourier_form.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/analysis.h"
#include "kernels/layout_fourier.h"

namespace sardonyx::codegen {

std::optional<FourierForm> fourier_form(const RoutineOp& op, const Value& x, int units) {
  using namespace sdx::layout;
  std::int64_t parts = 0;
  if (!std::ranges::all_of(op.params, [](const Expr& p) { return is_const(p); }) || !is_const_int(x.shape[3], parts))
    return std::nullopt;
  const std::int64_t length = op.params[0]->i;
  const bool inverse = op.params[1]->i != 0, onesided = op.params[2]->i != 0;
  const bool real = inverse ? onesided : parts == 1, columns = !is_const(x.shape[2], 1);
  const Expr lines = x.shape[0] * x.shape[2];
  std::int64_t known = 0, most_lines = kFourierThreads;
  if (is_const_int(lines, known)) most_lines = std::clamp<std::int64_t>(known / units, 1, most_lines);
  const FourierLayout l = fourier_layout(static_cast<int>(real && length % 2 == 0 ? length / 2 : length), columns,
                                         static_cast<int>(most_lines));
  return FourierForm{fmt::format("routine_fourier<FourierKind<{}, {}, {}, {}>, {}, {}>(b0, b1, s0, s1, s2);", length,
                                 inverse, onesided, parts, columns, most_lines),
                     {lines, x.shape[1], x.shape[2]},
                     idx::ceildiv(lines, l.lines) * Expr(kFourierThreads)};
}

}  // namespace sardonyx::codegen
