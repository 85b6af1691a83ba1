// The forms of calibration tables; see calibration.h.
#include "import/calibration.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "support/error.h"
#include "support/text.h"

namespace sardonyx {
namespace {

constexpr float kInt8 = 127;   // TensorRT's tables hold steps of int8
constexpr int kMaxDepth = 16;  // of JSON

class Parser {
 public:
  Parser(std::string_view text, const std::string& what) : text_(text), what_(what) {}

  CalibrationTable run() {
    const std::size_t first = text_.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) bad("it is empty");
    if (text_.starts_with("TRT-"))
      lines(true);
    else if (text_[first] == '{')
      json();
    else if (text_.find('\0') != std::string_view::npos)
      flatbuffers();
    else
      lines(false);
    return std::move(table_);
  }

 private:
  [[noreturn]] void bad(const std::string& why) const {
    fail(ErrorKind::kInvalidArgument,
         "{} is not a calibration table: {}. A table is what onnxruntime.quantization.write_calibration_table() writes "
         "(json, cache, flatbuffers), or TensorRT's cache",
         what_, why);
  }

  void add(std::string_view name, double largest) {
    if (name.empty()) bad("a tensor has no name");
    const auto f = static_cast<float>(largest);
    if (!std::isfinite(f) || f < 0) bad(fmt::format("{} has the largest value {}", quote(name), largest));
    if (f > 0) table_.largest.insert_or_assign(std::string(name), f);
  }

  double number(std::string_view text, std::string_view name) const {
    double x = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
    if (error != std::errc() || end != text.data() + text.size())
      bad(fmt::format("{} has the value {}, which is no number", quote(name), quote(text)));
    return x;
  }

  // "name: hexadecimal digits" after a first line, or "name number". Names may hold either separator.
  void lines(bool native) {
    std::string_view rest = text_;
    for (std::size_t count = 1; !rest.empty(); ++count) {
      const std::size_t end = rest.find('\n');
      std::string_view line = rest.substr(0, end);
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
      if (line.empty() || (native && count == 1)) continue;
      const std::size_t at = line.rfind(native ? ": " : " ");
      if (at == std::string_view::npos || at == 0)
        bad(fmt::format("line {} is not '{}'", count, native ? "name: 3c010a14" : "name 1.5"));
      const std::string_view name = line.substr(0, at), value = line.substr(at + (native ? 2 : 1));
      if (!native) {
        add(name, number(value, name));
        continue;
      }
      std::uint32_t bits = 0;
      const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), bits, 16);
      if (error != std::errc() || stop != value.data() + value.size())
        bad(fmt::format("line {}: {} is not the bits of a float", count, quote(value)));
      add(name, static_cast<double>(std::bit_cast<float>(bits)) * kInt8);
    }
  }

  // A number, a list of one, or an object with such as "data".
  double json_number(const nlohmann::json& j, const std::string& name) const {
    if (j.is_number()) return j.get<double>();
    if (j.is_array() && j.size() == 1 && j[0].is_number()) return j[0].get<double>();
    if (j.is_object() && j.contains("data") && !j["data"].is_object()) return json_number(j["data"], name);
    bad(fmt::format("a bound of {} is no number", quote(name)));
  }

  void json() {
    const auto shallow = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) { return depth < kMaxDepth; };
    nlohmann::json all = nlohmann::json::parse(text_.begin(), text_.end(), shallow, /*allow_exceptions=*/false);
    if (!all.is_object()) bad("it starts like JSON, but is not valid JSON");
    if (all.contains("CLS") && all.contains("data") && all["data"].is_object()) {
      nlohmann::json inner = std::move(all["data"]);
      all = std::move(inner);
    }
    for (const auto& [name, value] : all.items()) {
      double low = 0, high = 0;
      if (value.is_array() && value.size() >= 2) {
        low = json_number(value[0], name);
        high = json_number(value[1], name);
      } else if (value.is_object() && value.contains("lowest") && value.contains("highest")) {
        low = json_number(value["lowest"], name);
        high = json_number(value["highest"], name);
      } else if (value.is_number()) {
        high = value.get<double>();
      } else {
        bad(fmt::format("{} has neither [lowest, highest] nor a number", quote(name)));
      }
      add(name, std::max(std::abs(low), std::abs(high)));
    }
  }

  // table { dict: [table { key: string; value: string }] }, by the format's own rules: offsets are relative to where
  // they stand; a table's first word leads back to the places of its fields.
  std::uint32_t word(std::size_t at) const {
    if (at > text_.size() || text_.size() - at < 4) bad("it ends early");
    std::uint32_t x = 0;
    for (std::size_t k = 0; k < 4; ++k)
      x |= static_cast<std::uint32_t>(static_cast<unsigned char>(text_[at + k])) << (8 * k);
    return x;
  }
  std::size_t half(std::size_t at) const {
    if (at > text_.size() || text_.size() - at < 2) bad("it ends early");
    return static_cast<unsigned char>(text_[at]) | static_cast<std::size_t>(static_cast<unsigned char>(text_[at + 1]))
                                                       << 8;
  }
  std::size_t target(std::size_t at) const { return at + word(at); }
  /// Offset of field k of a FlatBuffers table.
  std::size_t field(std::size_t table, std::size_t k) const {
    const auto fields = static_cast<std::int64_t>(table) - static_cast<std::int32_t>(word(table));
    if (fields < 0 || half(static_cast<std::size_t>(fields)) < 4 + 2 * (k + 1)) bad("a table lacks a field");
    const std::size_t offset = half(static_cast<std::size_t>(fields) + 4 + 2 * k);
    if (offset == 0) bad("a table lacks a field");
    return table + offset;
  }
  std::string_view string(std::size_t at) {
    const std::size_t size = word(at);
    if (size > text_.size() - at - 4) bad("it ends early");
    // Overlapping strings would let a small file fill much memory.
    copied_ += size;
    if (copied_ > text_.size()) bad("its strings are larger than the file");
    return text_.substr(at + 4, size);
  }
  void flatbuffers() {
    const std::size_t list = target(field(target(0), 0)), count = word(list);
    if (count > text_.size() / 4) bad("it is neither text nor a flatbuffer");
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t entry = target(list + 4 + 4 * k);
      const std::string_view name = string(target(field(entry, 0))), value = string(target(field(entry, 1)));
      add(name, number(value, name));
    }
  }

  std::string_view text_;
  const std::string& what_;
  CalibrationTable table_;
  std::size_t copied_ = 0;
};

}  // namespace

CalibrationTable parse_calibration(std::span<const std::byte> bytes, const std::string& what) {
  return Parser({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, what).run();
}

CalibrationTable read_calibration(const std::filesystem::path& path) {
  std::error_code problem;
  const auto size = std::filesystem::file_size(path, problem);
  std::ifstream in(path, std::ios::binary);
  if (problem || !in) fail(ErrorKind::kIo, "the calibration table {} can't be read", path.string());
  if (size > kMaxCalibrationBytes)
    fail(ErrorKind::kIo, "the calibration table {} has {} bytes, more than the {} that are accepted", path.string(),
         size, kMaxCalibrationBytes);
  std::string text(size, '\0');
  in.read(text.data(), static_cast<std::streamsize>(size));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return parse_calibration(std::as_bytes(std::span(text)), path.string());
}

}  // namespace sardonyx
