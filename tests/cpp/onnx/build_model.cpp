// See build_model.h.
#include "build_model.h"

#include <stdlib.h>

#include <fstream>

namespace sardonyx::onnx {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "sardonyx_onnx_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void TemporaryFolder::write(const std::string& file, const std::string& bytes) const {
  std::filesystem::create_directories((path_ / file).parent_path());
  std::ofstream out(path_ / file, std::ios::binary);
  out << bytes;
  if (!out.flush()) throw std::runtime_error("can't write " + file);
}

}  // namespace sardonyx::onnx
