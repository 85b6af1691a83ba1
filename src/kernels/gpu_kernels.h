// What generated kernels of GPUs include.
#pragma once
#include "columns.h"
#include "extremes.h"
#include "gemm.h"
#include "gemm_short_k.h"
#include "gemv.h"
#include "gemv_mfma.h"
#include "gemv_wide.h"
#include "row_parts.h"
#include "skinny.h"
#include "window_mfma.h"
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "gemm_packed.h"
#include "gemm_tma.h"
#include "gemm_wgmma.h"
#include "gemm_wgmma_packed.h"
#include "packed_ring.h"
#include "stream.h"
#endif
