// Descriptions of convolutions, and their comparison with the reference on small integers, where every sum is exact.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "reference.h"

namespace sardonyx::host::test {

inline ConvDesc plain(int spatial, std::int64_t in_channels, std::int64_t out_channels, std::int64_t size,
                      std::int64_t kernel) {
  ConvDesc d;
  d.spatial = spatial;
  d.in_channels = in_channels, d.out_channels = out_channels;
  d.in = {size, size + 1, size + 2};
  d.kernel = {kernel, kernel, kernel};
  d.threads = 2;
  set_out(d);
  return d;
}

inline bool is_winograd(const std::string& kernel) { return kernel.starts_with("winograd"); }

// Winograd's transforms round by some units in the last place (2^-24) of the sums' magnitudes, which are thousands
// here. A wrong sum of integers is off by at least 1.
inline constexpr double kWinogradError = 0.01;

inline void expect_equal(const ConvDesc& d, const std::string& label) {
  const Outcome outcome = compare(d);
  EXPECT_LE(outcome.worst, is_winograd(outcome.kernel) ? kWinogradError : 0)
      << label << " by " << outcome.kernel << outcome.refusal;
}

}  // namespace sardonyx::host::test
