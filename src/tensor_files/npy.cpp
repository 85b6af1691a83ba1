// A strict reader of the header in the form that numpy writes: {'descr': '<f4', 'fortran_order': False, 'shape': (2,
// 3), }
#include "tensor_files/npy.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "support/error.h"

namespace sardonyx {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr int kMaxRank = 64;

class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  NpyHeader parse() {
    NpyHeader h;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!take('}')) {
      const std::string key = quoted();
      expect(':');
      bool& seen = key == "descr" ? descr : key == "fortran_order" ? order : key == "shape" ? shape : unknown(key);
      if (seen) bad("names '" + key + "' twice");
      seen = true;
      if (key == "descr")
        parse_descr(h);
      else if (key == "fortran_order")
        h.fortran_order = boolean();
      else
        h.dims = tuple();
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip();
    if (at_ != text_.size()) bad("has text after its closing brace");
    if (!descr || !order || !shape) bad("lacks 'descr', 'fortran_order' or 'shape'");
    return h;
  }

 private:
  [[noreturn]] void bad(const std::string& what) {
    fail(ErrorKind::kInvalidArgument, "{}: the .npy header {}; save the array again with numpy.save", where_, what);
  }
  [[noreturn]] bool& unknown(const std::string& key) { bad("has an unknown key '" + key.substr(0, 40) + "'"); }

  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) bad(std::string("is malformed: '") + c + "' expected at byte " + std::to_string(at_));
  }
  std::string quoted() {
    skip();
    const char q = at_ < text_.size() ? text_[at_] : 0;
    if (q != '\'' && q != '"') bad("is malformed: a quoted text expected at byte " + std::to_string(at_));
    const std::size_t end = text_.find(q, at_ + 1);
    if (end == std::string_view::npos) bad("is malformed: a quote is never closed");
    std::string out(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return out;
  }
  bool boolean() {
    skip();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}})
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return value;
      }
    bad("is malformed: True or False expected");
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> out;
    expect('(');
    while (!take(')')) {
      skip();
      std::int64_t v = 0;
      const std::size_t start = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, text_[at_] - '0', &v))
          bad("has a dim that overflows");
      if (at_ == start) bad("is malformed: a dim expected at byte " + std::to_string(at_));
      if (out.size() >= kMaxRank) bad("has more than 64 dims");
      out.push_back(v);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
    return out;
  }
  void parse_descr(NpyHeader& h) {
    skip();
    if (at_ < text_.size() && text_[at_] == '[')
      fail(ErrorKind::kUnsupported, "{}: an array of records; save its fields as arrays of numbers", where_);
    const std::string d = quoted();
    if (d.find('O') != std::string::npos)
      fail(ErrorKind::kUnsupported,
           "{}: an array of Python objects, which are never loaded; save it with a number type", where_);
    const bool ok = d.size() >= 3 && d.size() <= 4 && std::strchr("<>|=", d[0]) != nullptr;
    const std::string type = ok ? d.substr(1) : "";
    h.big_endian = ok && d[0] == '>';
    static const std::pair<const char*, DType> types[] = {
        {"b1", DType::kBool},      {"i1", DType::kInt8},       {"i2", DType::kInt16},   {"i4", DType::kInt32},
        {"i8", DType::kInt64},     {"u1", DType::kUInt8},      {"u2", DType::kUInt16},  {"u4", DType::kUInt32},
        {"u8", DType::kUInt64},    {"f2", DType::kFloat16},    {"f4", DType::kFloat32}, {"f8", DType::kFloat64},
        {"c8", DType::kComplex64}, {"c16", DType::kComplex128}};
    for (const auto& [text, dtype] : types)
      if (type == text) {
        h.dtype = dtype;
        h.item_bytes = size_of(dtype);
        return;
      }
    if (type == "V1" || type == "f1" || type == "V2") {  // ml_dtypes
      h.item_bytes = type == "V2" ? 2 : 1;
      return;
    }
    fail(ErrorKind::kUnsupported, "{}: elements of numpy type '{}' are not supported; save it with a number type",
         where_, d.substr(0, 40));
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
};

void swap_bytes(std::byte* p, std::size_t bytes, std::size_t item) {
  for (std::size_t k = 0; k + item <= bytes; k += item) std::reverse(p + k, p + k + item);
}

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> start, std::uint64_t file_bytes, const std::string& where) {
  const auto* p = reinterpret_cast<const unsigned char*>(start.data());
  if (start.size() < 10 || std::memcmp(p, "\x93NUMPY", 6) != 0)
    fail(ErrorKind::kInvalidArgument, "{}: this is not a .npy file; save the array with numpy.save", where);
  if (p[6] < 1 || p[6] > 3)
    fail(ErrorKind::kUnsupported, "{}: version {} of the .npy format; versions 1 to 3 are read", where, p[6]);
  const bool wide = p[6] >= 2;
  if (wide && start.size() < 12) fail(ErrorKind::kInvalidArgument, "{}: the file is truncated", where);
  const std::size_t length = wide ? p[8] | p[9] << 8 | std::size_t{p[10]} << 16 | std::size_t{p[11]} << 24
                                  : static_cast<std::size_t>(p[8] | p[9] << 8);
  const std::size_t begin = wide ? 12 : 10;
  if (length > kMaxNpyHeader)
    fail(ErrorKind::kInvalidArgument, "{}: the .npy header claims {} bytes; at most {} are read", where, length,
         kMaxNpyHeader);
  if (start.size() - begin < length) fail(ErrorKind::kInvalidArgument, "{}: the file is truncated", where);
  NpyHeader h = HeaderParser({reinterpret_cast<const char*>(p) + begin, length}, where).parse();
  h.data_offset = begin + length;
  // Strides must not overflow either, so positive dims count even if another dim is 0.
  std::int64_t bytes = static_cast<std::int64_t>(h.item_bytes);
  bool empty = false;
  for (std::int64_t d : h.dims) {
    empty |= d == 0;
    if (d > 0 && __builtin_mul_overflow(bytes, d, &bytes))
      fail(ErrorKind::kInvalidArgument, "{}: the array's dims overflow; save it again with numpy.save", where);
  }
  h.data_bytes = empty ? 0 : static_cast<std::size_t>(bytes);
  if (file_bytes - h.data_offset < h.data_bytes)
    fail(ErrorKind::kInvalidArgument,
         "{}: the file is truncated: {} bytes of elements, of {} that its header announces", where,
         file_bytes - h.data_offset, h.data_bytes);
  return h;
}

void read_npy_elements(const NpyHeader& h, std::span<const std::byte> elements, std::byte* out) {
  check(elements.size() >= h.data_bytes, "elements of an array are missing");
  if (h.data_bytes == 0) return;
  const std::size_t item = h.item_bytes;
  if (!h.fortran_order || h.dims.size() < 2) {
    std::memcpy(out, elements.data(), h.data_bytes);
  } else {
    // Iterates in the file's order, first index fastest, and updates the row-major offset.
    const std::size_t rank = h.dims.size();
    std::vector<std::size_t> stride(rank, item);
    for (std::size_t k = rank - 1; k > 0; --k) stride[k - 1] = stride[k] * static_cast<std::size_t>(h.dims[k]);
    std::vector<std::int64_t> index(rank, 0);
    std::size_t to = 0;
    for (std::size_t from = 0; from < h.data_bytes; from += item) {
      std::memcpy(out + to, elements.data() + from, item);
      for (std::size_t k = 0; k < rank; ++k) {
        to += stride[k];
        if (++index[k] < h.dims[k]) break;
        to -= stride[k] * static_cast<std::size_t>(h.dims[k]);
        index[k] = 0;
      }
    }
  }
  if (h.big_endian)
    swap_bytes(out, h.data_bytes, h.dtype == DType::kComplex64 || h.dtype == DType::kComplex128 ? item / 2 : item);
  if (h.dtype == DType::kBool)
    for (std::size_t k = 0; k < h.data_bytes; ++k) out[k] = std::byte{out[k] != std::byte{0}};
}

std::string npy_header(DType dtype, std::span<const std::int64_t> dims) {
  std::string type;
  switch (dtype) {
    case DType::kBool:
      type = "|b1";
      break;
    case DType::kInt8:
      type = "|i1";
      break;
    case DType::kUInt8:
      type = "|u1";
      break;
    case DType::kInt16:
      type = "<i2";
      break;
    case DType::kUInt16:
      type = "<u2";
      break;
    case DType::kInt32:
      type = "<i4";
      break;
    case DType::kUInt32:
      type = "<u4";
      break;
    case DType::kInt64:
      type = "<i8";
      break;
    case DType::kUInt64:
      type = "<u8";
      break;
    case DType::kFloat16:
      type = "<f2";
      break;
    case DType::kFloat32:
      type = "<f4";
      break;
    case DType::kFloat64:
      type = "<f8";
      break;
    case DType::kComplex64:
      type = "<c8";
      break;
    case DType::kComplex128:
      type = "<c16";
      break;
    default:
      type = size_of(dtype) == 2 ? "<V2" : "|V1";
      break;
  }
  std::string shape;
  for (std::int64_t d : dims) shape += std::to_string(d) + ", ";
  if (dims.size() > 1)
    shape.resize(shape.size() - 2);
  else if (dims.size() == 1)
    shape.pop_back();
  std::string text = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  const std::size_t total = (10 + text.size() + 1 + 63) / 64 * 64;  // elements start at a multiple of 64
  text.append(total - 10 - text.size() - 1, ' ');
  text += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(text.size() & 0xff);
  out += static_cast<char>(text.size() >> 8);
  return out + text;
}

}  // namespace sardonyx
