#include "custom/source.h"

#include <fstream>
#include <set>
#include <sstream>

#include "support/error.h"

namespace sardonyx::custom {
namespace {

constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxBytes = 16 << 20;

/// A text in quotes for #line.
std::string quoted(const std::string& name) {
  std::string out = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') out += '\\';
    if (c != '\n') out += c;
  }
  return out + "\"";
}

/// The name in `#include "name"`; empty if the line is not one.
std::string included(std::string_view line) {
  const auto skip = [&] { line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size())); };
  skip();
  if (!line.starts_with('#')) return "";
  line.remove_prefix(1);
  skip();
  if (!line.starts_with("include")) return "";
  line.remove_prefix(7);
  skip();
  if (!line.starts_with('"')) return "";
  line.remove_prefix(1);
  const std::size_t end = line.find('"');
  return end == std::string_view::npos ? "" : std::string(line.substr(0, end));
}

class Flattener {
 public:
  void add(const std::string& text, const std::string& name, const std::filesystem::path& folder, int depth) {
    if (depth > kMaxDepth) fail(ErrorKind::kInvalidArgument, "{}: files include each other without end", name);
    out_ += fmt::format("#line 1 {}\n", quoted(name));
    std::istringstream lines(text);
    std::string line;
    for (std::size_t number = 1; std::getline(lines, line); ++number) {
      if (line.find("#pragma once") != std::string::npos)
        line.clear();  // handled below; the pragma would apply to the whole text
      const std::string header = folder.empty() ? "" : included(line);
      const std::filesystem::path path = folder / header;
      std::error_code error;
      if (header.empty() || !std::filesystem::is_regular_file(path, error)) {
        out_ += line + "\n";
      } else {
        const std::string inside = read_text(path);
        const bool once = inside.find("#pragma once") != std::string::npos;
        if (!once || once_.insert(std::filesystem::weakly_canonical(path, error)).second)
          add(inside, path.filename().string(), path.parent_path(), depth + 1);
        out_ += fmt::format("#line {} {}\n", number + 1, quoted(name));
      }
      if (out_.size() > kMaxBytes)
        fail(ErrorKind::kInvalidArgument, "{}: a source of more than {} bytes", name, kMaxBytes);
    }
  }

  std::string out_;

 private:
  std::set<std::filesystem::path> once_;
};

}  // namespace

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text;
  std::error_code error;
  const auto size = std::filesystem::is_regular_file(file, error) ? std::filesystem::file_size(file, error) : 0;
  if (!in || error || !std::filesystem::is_regular_file(file, error))
    fail(ErrorKind::kIo, "{} can't be read", file.string());
  if (size > kMaxBytes) fail(ErrorKind::kIo, "{} has {} bytes; at most {} are read", file.string(), size, kMaxBytes);
  text.resize(size);
  in.read(text.data(), static_cast<std::streamsize>(size));
  if (static_cast<std::size_t>(in.gcount()) != size) fail(ErrorKind::kIo, "{} can't be read", file.string());
  return text;
}

std::string flattened_source(const CustomOperator& op) {
  Flattener f;
  const std::string name = op.file.empty() ? op.name : op.file.filename().string();
  f.add(op.source, name, op.file.parent_path().empty() && !op.file.empty() ? "." : op.file.parent_path(), 0);
  // A source without kernels is C++: its functions run on the device too.
  if (op.source.find("__global__") == std::string::npos) return "SDX_PLAIN_BEGIN\n" + f.out_ + "\nSDX_PLAIN_END\n";
  return std::move(f.out_);
}

}  // namespace sardonyx::custom
