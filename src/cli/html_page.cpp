#include "cli/html_page.h"

#include "cli_assets.h"
#include "support/error.h"

namespace sardonyx::cli {

std::string_view asset(std::string_view name) {
  for (const EmbeddedFile& f : kCliAssets)
    if (name == f.name) return f.text();
  fail(ErrorKind::kInternal, "internal error: no asset {}", name);
}

std::string page(std::string_view name, std::string_view json) {
  const std::string_view text = asset(name), mark = "/*DATA*/";
  const std::size_t at = text.find(mark);
  check(at != std::string_view::npos, "page {} has no place for data", name);
  std::string out(text.substr(0, at));
  out.reserve(text.size() + json.size());
  for (char c : json) {
    if (c == '<')
      out += "\\u003c";  // so that no text can end the script
    else
      out += c;
  }
  return out.append(text.substr(at + mark.size()));
}

}  // namespace sardonyx::cli
