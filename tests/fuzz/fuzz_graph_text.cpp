// Graphs as text of any bytes: refused with Error, or a valid graph whose text reads back as the same text.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "graph/text.h"
#include "graph/verify.h"
#include "graph_text/parse.h"
#include "support/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sardonyx;
  std::unique_ptr<Graph> g;
  try {
    g = parse_graph({reinterpret_cast<const char*>(data), size});
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kInvalidArgument) std::abort();
    return 0;
  }
  if (!verify(*g).empty()) std::abort();
  parse_graph(to_string(*g));  // must not throw
  return 0;
}
