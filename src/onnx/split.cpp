// A walk over protobuf's wire format, three levels deep.
#include "onnx/split.h"

#include <optional>

namespace sardonyx::onnx {
namespace {

using Span = std::span<const std::byte>;

constexpr std::uint64_t kGraph = 7, kInitializer = 5, kRawData = 9;  // field numbers
enum WireType { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

struct Field {
  std::uint64_t number = 0;
  std::uint64_t type = 0;
  Span whole;  // tag included
  Span value;  // of a length-delimited field
};

std::optional<std::uint64_t> varint(Span& s) {
  std::uint64_t value = 0;
  for (std::size_t k = 0; k < 10 && k < s.size(); ++k) {
    const auto byte = static_cast<std::uint64_t>(s[k]);
    value |= (byte & 127) << (7 * k);
    if (byte < 128) {
      s = s.subspan(k + 1);
      return value;
    }
  }
  return std::nullopt;
}

// Takes the next field off `s`; nothing when it is malformed or of a type that ONNX does not use.
std::optional<Field> next(Span& s) {
  const Span start = s;
  const auto tag = varint(s);
  if (!tag) return std::nullopt;
  Field f{*tag >> 3, *tag & 7, {}, {}};
  std::uint64_t size = 0;
  if (f.type == kVarint) {
    if (!varint(s)) return std::nullopt;
  } else if (f.type == kFixed64 || f.type == kFixed32) {
    size = f.type == kFixed64 ? 8 : 4;
  } else if (f.type == kLength) {
    const auto length = varint(s);
    if (!length) return std::nullopt;
    size = *length;
  } else {
    return std::nullopt;
  }
  if (size > s.size()) return std::nullopt;
  f.value = s.first(size);
  s = s.subspan(size);
  f.whole = start.first(start.size() - s.size());
  return f;
}

std::optional<std::vector<Field>> fields(Span message) {
  std::vector<Field> out;
  while (!message.empty()) {
    const auto f = next(message);
    if (!f) return std::nullopt;
    out.push_back(*f);
  }
  return out;
}

void append(std::string& to, Span bytes) { to.append(reinterpret_cast<const char*>(bytes.data()), bytes.size()); }

void append_field(std::string& to, std::uint64_t number, const std::string& value) {
  const auto put = [&](std::uint64_t v) {
    for (; v >= 128; v >>= 7) to += static_cast<char>(v | 128);
    to += static_cast<char>(v);
  };
  put(number << 3 | kLength);
  put(value.size());
  to += value;
}

// The tensor without its raw data, if there is one piece of it and it is large.
Span take_raw(Span tensor, std::string& rest) {
  Span raw;
  int pieces = 0;
  const auto all = fields(tensor);
  if (all)
    for (const Field& f : *all)
      if (f.number == kRawData && f.type == kLength) raw = f.value, ++pieces;
  if (pieces != 1 || raw.size() < kSplitBytes) {
    append(rest, tensor);
    return {};
  }
  for (const Field& f : *all)
    if (f.number != kRawData || f.type != kLength) append(rest, f.whole);
  return raw;
}

}  // namespace

SplitModel split_model(Span model) {
  SplitModel out;
  const auto whole = [&] {
    out.raw.clear();
    out.structure.assign(reinterpret_cast<const char*>(model.data()), model.size());
    return out;
  };
  const auto top = fields(model);
  if (!top) return whole();
  for (const Field& f : *top) {
    if (f.number != kGraph || f.type != kLength) {
      append(out.structure, f.whole);
      continue;
    }
    const auto parts = fields(f.value);
    if (!parts) return whole();
    std::string graph;
    for (const Field& p : *parts) {
      if (p.number != kInitializer || p.type != kLength) {
        append(graph, p.whole);
        continue;
      }
      std::string tensor;
      out.raw.push_back(take_raw(p.value, tensor));
      append_field(graph, kInitializer, tensor);
    }
    append_field(out.structure, kGraph, graph);
  }
  return out;
}

}  // namespace sardonyx::onnx
