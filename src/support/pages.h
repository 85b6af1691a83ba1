// Memory for what is read again and again: on large pages where the system gives them when asked (Linux with
// transparent huge pages). Weights that are not in the caches come a third to a half faster from those.
#pragma once
#include <cstddef>
#include <memory>

namespace sardonyx {

/// At a multiple of 64 bytes, for use over a long time; null if there is none. Not initialised.
std::shared_ptr<void> allocate_on_large_pages(std::size_t bytes);

/// The same for results, whose sizes come again run after run: what is given back is kept for the next one of about its
/// size, since the system takes as long to hand out fresh pages as a small model to run (8 MB: 1 to 2 ms). 64 MiB are
/// kept at most.
std::shared_ptr<void> allocate_reusable(std::size_t bytes);

/// The same for many small pieces that live about as long as each other (a model's weights): they share pages, which
/// are given back when the last piece is.
std::shared_ptr<void> allocate_piece(std::size_t bytes);

}  // namespace sardonyx
