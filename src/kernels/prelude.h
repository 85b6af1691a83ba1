// The prelude of every generated kernel: types, casts, mathematics. Freestanding C++20 for clang 22, compiled for the
// host (x86-64, aarch64), amdgcn and nvptx; includes nothing from outside this folder.
//
// Compile with -std=c++20 -ffreestanding -fno-math-errno and without -ffast-math: the functions rely on IEEE arithmetic
// in round-to-nearest mode. Contraction and reassociation that a kernel asks for (-ffp-contract, #pragma clang fp) stay
// outside them.
//
// Everything is in namespace sdx, always inlined, and written without table look-ups, calls and loops (exceptions are
// named where they stand), so that clang vectorises a loop over it.
#pragma once
#include "prelude_activation.h"
#include "prelude_basic.h"
#include "prelude_cast.h"
#include "prelude_fast.h"
#include "prelude_half.h"
#include "prelude_math_f32.h"
#include "prelude_math_f64.h"
#include "prelude_pack.h"
#include "prelude_quantize.h"
#include "prelude_random.h"
#include "prelude_trig_f32.h"
#include "prelude_trig_f64.h"
#include "prelude_types.h"
