#include "program/objects.h"

#include "support/tasks.h"

namespace sardonyx {

void Objects::complete(int threads) const {
  if (!later_) return;
  const BackgroundTexts::Pause pause;
  run_tasks(size(), threads, [&](std::size_t k) { later_->get(k); });
}

bool Objects::operator==(const Objects& other) const {
  if (size() != other.size()) return false;
  for (std::size_t k = 0; k < size(); ++k)
    if ((*this)[k] != other[k]) return false;
  return true;
}

}  // namespace sardonyx
