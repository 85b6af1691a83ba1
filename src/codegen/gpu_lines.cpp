// GPU kernels of loops whose innermost extent is no multiple of a pack (85 numbers of a box, 49 of a window): 32
// neighbouring threads process a line, so that accesses are contiguous, and what is the same along the line is computed
// once. Several loads of a thread are in flight at a time.
#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kLanes = 32;     // threads of a line: one 128-byte access of 4-byte elements
constexpr std::int64_t kChunks = 4;     // loads in flight of a thread
constexpr std::int64_t kLongest = 256;  // longer lines get more threads

}  // namespace

bool GpuGenerator::suits_lines(const FlatLoop& f) {
  std::int64_t n = 0;
  Expr step, rest;
  if (f.vars.size() < 2 || !is_const_int(f.vars.back()->args[0], n) ||
      !idx::split_affine(f.offset, f.vars.back(), step, rest) || !is_const(step, 1))
    return false;
  // Lanes without an element are idle.
  return n <= kLongest && n * 4 >= (n + kLanes - 1) / kLanes * kLanes * 3;
}

void GpuGenerator::lines(const FlatLoop& f) {
  const Exprs outer(f.vars.begin(), f.vars.end() - 1);
  const Expr inner = f.vars.back();
  Expr count = 1;
  for (const Expr& v : outer) count = count * v->args[0];
  const bool narrow = range_.narrow(count * Expr(kLanes));
  const std::string n = emit_.value(count), p = emit_.fresh("p"), q = emit_.fresh("q");
  std::int64_t known = 0;
  const std::string step =
      is_const_int(count, known) ? fmt::format("thread_step<{}>()", known * kLanes) : std::string("all_threads()");
  emit_.open(fmt::format("for ({0} {1} = {0}(first_thread()) / {3}; {1} < {0}({2}); {1} += {0}({4}) / {3})",
                         narrow ? "u32" : "i64", p, n, kLanes, step));
  emit_.line(fmt::format("{0} {1} = {0}({2});", narrow ? "i32" : "i64", q, p));
  decode(outer, q, narrow);
  const std::int64_t chunks = (inner->args[0]->i + kLanes - 1) / kLanes;
  line_body(f.body, f, static_cast<int>(std::min(chunks, kChunks)));
  emit_.close();
  clear(outer);
  threads_ = count * Expr(kLanes);
  work_ = work_ * Expr(chunks);
}

void GpuGenerator::line_body(const Expr& body, const FlatLoop& f, int chunks) {
  const Expr inner = f.vars.back();
  if (splits(body, inner)) {
    const std::string c = emit_.value(body->args[0]);
    emit_.open(fmt::format("if ({})", c));
    for (const int side : {1, 2}) {
      line_body(body->args[static_cast<std::size_t>(side)], f, chunks);
      emit_.close();
      if (side == 1) emit_.open("else");
    }
    return;
  }
  const std::string i = emit_.fresh("i"), first = emit_.fresh("f"), c = emit_.fresh("c");
  const char* type = emit_.type_of(inner);
  const std::string n = emit_.value(inner->args[0]);
  const auto each = [&] {
    emit_.line("#pragma unroll");
    emit_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", c, chunks));
    emit_.line(fmt::format("const {0} {1} = {2} + {3} * {4};", type, i, first, c, kLanes));
    emit_.open(fmt::format("if ({} < {})", i, n));
    emit_.bind(inner, i);
  };
  emit_.open(fmt::format("for ({0} {1} = {0}(thread_id() % {2}); {1} < {3}; {1} += {4})", type, first, kLanes, n,
                         kLanes * chunks));
  std::vector<std::pair<Expr, std::string>> loaded;
  certain_loads(body, [&](const Expr& l) {
    if (!uses_var(l, inner)) emit_.value(l);
    // Loads inside another load's index are computed with that load.
    else if (!l->args[0]->has_load)
      loaded.emplace_back(l, emit_.fresh("v"));
  });
  for (const auto& [l, name] : loaded) emit_.line(fmt::format("{} {}[{}] = {{}};", emit_.type_of(l), name, chunks));
  if (!loaded.empty()) {
    each();
    for (const auto& [l, name] : loaded) {
      const std::string x = emit_.value(l);
      emit_.line(fmt::format("{}[{}] = {};", name, c, x));
    }
    emit_.close();
    emit_.close();
  }
  each();
  for (const auto& [l, name] : loaded) emit_.bind_value(l, fmt::format("{}[{}]", name, c));
  const std::string x = emit_.value(body);
  store(kernel_.stages[0].out, f.offset, x);
  emit_.close();
  emit_.close();
  emit_.close();
}

}  // namespace sardonyx::codegen
