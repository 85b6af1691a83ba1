// Functions that are compiled for several instruction sets.
#pragma once

/// Compiled for several instruction sets; the loader selects one.
#if defined(__x86_64__)
#define SARDONYX_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#else
#define SARDONYX_CLONES
#endif
