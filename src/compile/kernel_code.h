// What the compiler made of kernels for a GPU: registers, memory and instructions of each.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compile/compiler.h"

namespace sardonyx {

/// Of one kernel. Numbers are per thread (VGPRs, AGPRs, scratch) or per wave (SGPRs); what a target's code does not say
/// (PTX: registers are its driver's choice) is empty.
struct KernelCode {
  std::string symbol;
  std::optional<int> vgprs, agprs, sgprs;  ///< vgprs includes agprs where they are one file (CDNA)
  std::optional<int> vgpr_spills, sgpr_spills;
  std::optional<std::uint32_t> scratch;  ///< bytes of private memory
  std::uint32_t lds = 0;                 ///< bytes that the code declares; launches may add to it
  std::uint64_t code_bytes = 0;          ///< of PTX: its text
  std::uint64_t instructions = 0;
  std::uint64_t matrix_instructions = 0;  ///< v_mfma, v_smfmac, v_wmma, v_swmmac, v_dot; mma, wgmma
};

/// The kernels of one object of compile() for a GPU. Throws Error(kInvalidModel) for what compile() did not write.
std::vector<KernelCode> read_kernel_code(std::string_view object, const Target& target);

}  // namespace sardonyx
