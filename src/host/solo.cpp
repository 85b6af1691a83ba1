#include "host/solo.h"

#include <algorithm>
#include <ctime>

#include "host/parallel.h"

namespace sardonyx::host {
namespace {

// A thread is off its core for longer than waiting for other threads takes.
constexpr double kOffShare = 0.1, kOffSeconds = 100e-6;
constexpr double kLittle = 0.4;     // CPU time of the other threads, as a part of the calling thread's
constexpr float kRecent = 1.f / 4;  // weight of a run
constexpr float kOften = 0.5f;      // share of lonely runs at which one thread is chosen
constexpr float kAgain = 0.35f;     // that share after one thread was used: a lonely run or two choose it again
constexpr double kLeastHold = 4, kMostHold = 32;  // seconds with one thread; doubled each time it is chosen again
constexpr double kShort = 500e-6;                 // seconds
constexpr int kShortRuns = 16;                    // for one of which times are taken
constexpr double kQuiet = 1;                      // seconds, after which the other processes seem to have ended

double seconds(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

SoloChoice::Times now() {
  return {seconds(CLOCK_MONOTONIC), seconds(CLOCK_THREAD_CPUTIME_ID), seconds(CLOCK_PROCESS_CPUTIME_ID)};
}

}  // namespace

bool SoloChoice::wanted() { return !short_ || ++unmeasured_ >= kShortRuns; }

void SoloChoice::add(Times run) {
  const double spent = run.wall * (short_ ? kShortRuns : 1);  // of all runs since the last one
  unmeasured_ = 0;
  short_ = run.wall < kShort;
  const double off = run.wall - run.cpu;
  const bool disturbed = off > kOffSeconds && off > kOffShare * run.wall;
  if (solo()) {
    quiet_ = disturbed ? 0 : quiet_ + spent;
    left_ -= spent;
    if (quiet_ > kQuiet) left_ = hold_ = 0;
    if (left_ <= 0) lonely_ = kAgain;
    return;
  }
  const bool lonely = disturbed && run.all - run.cpu < kLittle * run.cpu;
  lonely_ += kRecent * ((lonely ? 1.f : 0.f) - lonely_);
  if (lonely_ < kAgain / 2) hold_ = 0;
  if (lonely_ <= kOften) return;
  left_ = hold_ = std::clamp(2 * hold_, kLeastHold, kMostHold);
  quiet_ = 0;
}

SoloRun::SoloRun(SoloChoice& choice)
    : measured_(choice.wanted() ? &choice : nullptr),
      start_(measured_ ? now() : SoloChoice::Times{}),
      before_(stay_in_thread(choice.solo())) {}

SoloRun::~SoloRun() {
  stay_in_thread(before_);
  if (!measured_) return;
  const SoloChoice::Times end = now();
  measured_->add({end.wall - start_.wall, end.cpu - start_.cpu, end.all - start_.all});
}

}  // namespace sardonyx::host
