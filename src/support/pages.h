// Memory for data that is read many times, on large pages where the system provides them on request (Linux with
// transparent huge pages). Weights that are not in the caches are read a third to a half faster from large pages.
#pragma once
#include <cstddef>
#include <memory>

namespace sardonyx {

/// Long-lived memory, aligned to 64 bytes and not initialised; null if there is none.
std::shared_ptr<void> allocate_on_large_pages(std::size_t bytes);

/// The same for results of runs, whose sizes repeat: freed memory is kept for the next result of about the same size,
/// because fresh pages from the system take as long as the run of a small model (8 MB: 1 to 2 ms). At most 64 MiB are
/// kept.
std::shared_ptr<void> allocate_reusable(std::size_t bytes);

/// The same for many small pieces with about the same lifetime (a model's weights): they share pages, which are freed
/// with the last piece.
std::shared_ptr<void> allocate_piece(std::size_t bytes);

}  // namespace sardonyx
