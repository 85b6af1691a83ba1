// Runs the threads of a GPU block on the host, for kernels in the dialect of kernels/custom.h.
//
// One OS thread runs a block. If the kernel has no barrier and no warp function, which is known when it is compiled
// (llvm/custom_entry.h), its threads are the iterations of a loop. Otherwise each thread of the block has a stack of
// its own and runs until it waits; then the next one runs (fibers, switched in user mode). This is correct for any
// kernel: a barrier may stand in a loop, a branch or a called function. A barrier is passed when every thread that has
// not returned waits at one; a warp function when the lanes that its mask names have come, or, if some of them wait
// elsewhere, when no thread of the block can go on.
//
// Threads of a block never run at the same time, so one that spins until another thread of its block changes memory
// spins for ever. Blocks run in ascending order on each OS thread, several at a time.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>

#include "compile/host_runtime.h"

namespace sardonyx {

/// While it lives, this OS thread can call kernels of the dialect: it has shared memory of its own.
class BlockThreads {
 public:
  /// `shared`: bytes of dynamic shared memory.
  explicit BlockThreads(std::size_t shared);
  ~BlockThreads();
  BlockThreads(const BlockThreads&) = delete;
  BlockThreads& operator=(const BlockThreads&) = delete;
  /// Throws Error(kDevice) if a thread of a block needed more stack than it has, or there was no memory for stacks.
  void check(std::string_view kernel) const;

  struct State;

 private:
  State* state_;
};

/// What kernels of the dialect call: part of host_runtime(). A name that ends with a dot stands for all that begin so.
std::span<const RuntimeSymbol> block_runtime();

}  // namespace sardonyx
