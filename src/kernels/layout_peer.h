// The memory through which GPUs exchange tensors (collective/kernels/peer.h): compiled by the kernels and by the
// library, which allocates and clears it. Freestanding: no includes, built-in types only. Sizes are in bytes.
#pragma once

namespace sdx::layout {

/// Most workgroups of a launch, each with flags of its own. They wait for other GPUs' data, so all of them must run
/// concurrently, as 64 do on every chip.
inline constexpr unsigned kPeerBlocks = 64;
/// Cards of a group: those of one machine.
inline constexpr unsigned kPeerRanks = 8;

/// The start of an exchange area. Other cards write only `flags`.
struct PeerHead {
  __UINT64_TYPE__ peers[kPeerRanks];  ///< addresses of all cards' areas on this card
  unsigned abort;                     ///< the group is broken: stop waiting
  unsigned unused[47];
  unsigned turns[kPeerBlocks];  ///< number of calls by each workgroup
  unsigned flags[kPeerBlocks][kPeerRanks];
};
/// Offset of the slots, which hold the tensors of two calls: a card may begin the next call while others read this
/// one's.
inline constexpr long kPeerData = 16384;
inline constexpr long kPeerSlot = 256 * 1024;
static_assert(sizeof(PeerHead) <= kPeerData);

}  // namespace sdx::layout
