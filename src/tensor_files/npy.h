// numpy's .npy format (documented in numpy/lib/format.py), read from memory; untrusted. Uses support/ only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "support/dtype.h"

namespace sardonyx {

/// The header of a .npy file. numpy has no bfloat16, float8 or 4-bit types: the ml_dtypes package writes them as raw
/// bytes ("V2", "V1", "f1"), and dtype is empty for those.
struct NpyHeader {
  std::optional<DType> dtype;
  std::size_t item_bytes = 0;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<std::int64_t> dims;
  std::size_t data_offset = 0;  ///< offset of the elements
  std::size_t data_bytes = 0;   ///< bytes of the elements
};

/// Longest header that is accepted: numpy's own are about 100 bytes.
inline constexpr std::size_t kMaxNpyHeader = 65536;

/// Reads the header at the start of a file of `file_bytes` bytes, of which `start` are the first (all, or at least
/// kMaxNpyHeader + 12). Throws Error(kInvalidArgument), naming `where`: not an .npy file, pickled objects or records,
/// dims that overflow, or a file that is shorter than its elements.
NpyHeader parse_npy_header(std::span<const std::byte> start, std::uint64_t file_bytes, const std::string& where);

/// Writes the elements that follow a header to `out` (data_bytes long) in row-major order and this machine's byte
/// order.
void read_npy_elements(const NpyHeader& header, std::span<const std::byte> elements, std::byte* out);

/// The header of a row-major tensor; its elements follow. Types that numpy lacks are written as ml_dtypes does.
std::string npy_header(DType dtype, std::span<const std::int64_t> dims);

}  // namespace sardonyx
