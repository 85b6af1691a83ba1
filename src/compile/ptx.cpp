#include "compile/ptx.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/error.h"

namespace sardonyx {
namespace {

constexpr std::string_view kEntry = ".entry ";
constexpr std::string_view kWait = "griddepcontrol.wait;", kStart = "\tgriddepcontrol.wait;\n",
                           kHere = "// the launch before";

// Whether statements may access what other launches write: any memory except a kernel's parameters and shared memory.
// Bulk copies of tensors are written in kernels only, which issue them for constants before the wait (gemm_tma.h).
bool touches_memory(std::string_view statements) {
  for (const std::string_view access : {"ld.", "st.", "atom.", "red.", "cp.", "call"})
    for (std::size_t at = statements.find(access); at != std::string_view::npos; at = statements.find(access, at + 1)) {
      if (at > 0 && statements[at - 1] != '\t' && statements[at - 1] != ' ') continue;
      const std::string_view rest = statements.substr(at + access.size());
      if (!rest.starts_with("param.") && !rest.starts_with("shared.") && !rest.starts_with("async.bulk.tensor."))
        return true;
    }
  return false;
}

/// The first statement, after the declarations, of the body that begins at `at` ("
/// {").
std::size_t first_statement(std::string_view ptx, std::size_t at) {
  for (at = ptx.find('\n', at + 1); at != std::string_view::npos; at = ptx.find('\n', at + 1)) {
    const std::string_view rest = ptx.substr(at + 1);
    const std::string_view line = rest.substr(0, rest.find('\n'));
    if (!line.empty() && !line.starts_with("\t.reg ") && !line.starts_with("\t.local ") && !line.starts_with("//"))
      return at + 1;
  }
  return ptx.size();
}

// `text` from the first character that is no space.
std::string_view trimmed(std::string_view text) {
  const std::size_t at = text.find_first_not_of(" \t");
  return at == std::string_view::npos ? std::string_view() : text.substr(at);
}

// One statement "min.u16 \t%rs2, %rs1, 3;" in 32 bits; empty if it is anything else.
std::string widened(std::string_view statement) {
  const std::string_view operation = statement.substr(0, statement.find_first_of(" \t"));
  if (operation != "min.u16" && operation != "min.s16" && operation != "max.u16" && operation != "max.s16") return "";
  const char sign = operation[4];
  std::string_view rest = statement.substr(operation.size());
  rest = rest.substr(0, rest.find(';'));
  std::string_view operands[3];
  for (std::string_view& operand : operands) {
    rest = trimmed(rest);
    const std::size_t end = std::min(rest.find(','), rest.size());
    operand = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  // cvt takes no immediate operand: a move of 16 bits does.
  std::string out = "\t{\n\t.reg .b16 \t%half<2>;\n\t.reg .b32 \t%wide<2>;\n";
  for (const int k : {0, 1})
    out +=
        fmt::format("\tmov.b16 \t%half{0}, {2};\n\tcvt.{1}32.{1}16 \t%wide{0}, %half{0};\n", k, sign, operands[k + 1]);
  return out + fmt::format("\t{}.{}32 \t%wide0, %wide0, %wide1;\n\tcvt.u16.u32 \t{}, %wide0;\n\t}}\n",
                           operation.substr(0, 3), sign, operands[0]);
}

// Bits of a register by its name in LLVM's text: %rs1, %r1, %rd1; 0 for other operands.
int register_bits(std::string_view name) {
  if (name.starts_with("%rs")) return 16;
  if (name.starts_with("%rd")) return 64;
  return name.size() > 2 && name.starts_with("%r") && name[2] >= '0' && name[2] <= '9' ? 32 : 0;
}

// "st.global.b8 \t[%rd1], %r2;" with a copy of %r2; empty if it is anything else. A vector's registers stand in braces.
std::string untyped(std::string_view statement) {
  const std::string_view operation = statement.substr(0, statement.find_first_of(" \t"));
  const int stored = operation.ends_with(".b8") ? 8 : operation.ends_with(".b16") ? 16 : 0;
  const std::size_t address = statement.find(']');
  statement = statement.substr(0, statement.find(';') + 1);
  if (!operation.starts_with("st.") || stored == 0 || address == std::string_view::npos) return "";
  std::string declared, copied(statement.substr(0, address));
  int count = 0;
  for (std::string_view rest = statement.substr(address); !rest.empty();) {
    const std::size_t end = rest[0] == '%' ? std::min(rest.find_first_of(",;} \t"), rest.size()) : 1;
    const std::string_view word = rest.substr(0, end);
    if (const int bits = register_bits(word); bits > stored) {
      declared += fmt::format("\t.reg .b{0} \t%copy{1};\n\tmov.b{0} \t%copy{1}, {2};\n", bits, count, word);
      copied += fmt::format("%copy{}", count++);
    } else {
      copied += word;
    }
    rest.remove_prefix(end);
  }
  return count == 0 ? "" : fmt::format("\t{{\n{}\t{}\n\t}}\n", declared, copied);
}

// The text with each statement for which `rewritten` is not empty replaced by it. LLVM writes one statement a line;
// lines of inline assembly that hold several are left alone.
template <class Rewrite>
std::string rewrite_statements(const std::string& ptx, Rewrite rewritten) {
  std::string out;
  std::size_t from = 0;
  for (std::size_t at = 0; at < ptx.size();) {
    const std::size_t end = std::min(ptx.find('\n', at), ptx.size() - 1) + 1;
    const std::string_view line = trimmed(std::string_view(ptx).substr(at, end - at));
    const bool alone = std::count(line.begin(), line.end(), ';') == 1;
    if (const std::string text = alone ? rewritten(line) : ""; !text.empty()) {
      out.append(ptx, from, at - from);
      out += text;
      from = end;
    }
    at = end;
  }
  return out.append(ptx, from);
}

}  // namespace

void check_ptx(std::string_view ptx) {
  constexpr std::string_view kDeclaration = "\n.extern .func";
  const std::size_t at = ptx.find(kDeclaration);
  if (at == std::string_view::npos) return;
  const std::string_view line = ptx.substr(at + 1, ptx.find('\n', at + 1) - at - 1);
  fail(ErrorKind::kCompile, "the source calls a function that has no definition: {}", line);
}

std::string with_needed_version(std::string ptx) {
  constexpr std::string_view kOld = ".version 8.1", kNew = ".version 8.4";
  const std::size_t at = ptx.find(kOld);
  if (at != std::string::npos && ptx.find("k32.s32.u8.s8") != std::string::npos) ptx.replace(at, kOld.size(), kNew);
  return ptx;
}

std::string with_wide_minima(const std::string& ptx) { return rewrite_statements(ptx, widened); }

std::string with_untyped_stores(const std::string& ptx) { return rewrite_statements(ptx, untyped); }

std::string with_early_start(const std::string& ptx) {
  std::string out;
  std::size_t from = 0;
  for (std::size_t at = ptx.find(kEntry); at != std::string::npos; at = ptx.find(kEntry, at + 1)) {
    const std::size_t body = ptx.find("\n{", at);
    if (body == std::string::npos) break;
    const std::string_view text = std::string_view(ptx).substr(body, ptx.find("\n}", body) - body);
    if (text.find(kWait) != std::string_view::npos) continue;
    std::size_t first = first_statement(ptx, body + 1);
    if (const std::size_t here = text.find(kHere); here != std::string_view::npos && body + here > first) {
      const std::size_t line = ptx.rfind('\n', body + here) + 1;
      if (!touches_memory(std::string_view(ptx).substr(first, line - first))) first = line;
    }
    out.append(ptx, from, first - from);
    out += kStart;
    from = first;
  }
  return out.append(ptx, from);
}

}  // namespace sardonyx
