// Properties of compiled GPU kernels: registers, memory and instructions.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compile/compiler.h"

namespace sardonyx {

/// Of one kernel. Numbers are per thread (VGPRs, AGPRs, scratch) or per wave (SGPRs). Empty if the target's code does
/// not contain them (for PTX, the driver allocates registers).
struct KernelCode {
  std::string symbol;
  std::optional<int> vgprs, agprs, sgprs;  ///< vgprs includes agprs if they are one file (CDNA)
  std::optional<int> vgpr_spills, sgpr_spills;
  std::optional<std::uint32_t> scratch;  ///< bytes of private memory
  std::uint32_t lds = 0;                 ///< static; launches may add dynamic LDS
  std::uint64_t code_bytes = 0;          ///< for PTX: of its text
  std::uint64_t instructions = 0;
  std::uint64_t matrix_instructions = 0;  ///< v_mfma, v_smfmac, v_wmma, v_swmmac, v_dot; mma, wgmma
};

/// The kernels of an object that compile() made for a GPU. Throws Error(kInvalidModel) for anything else.
std::vector<KernelCode> read_kernel_code(std::string_view object, const Target& target);

}  // namespace sardonyx
