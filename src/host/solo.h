// Whether a run uses one thread because other processes take the cores.
#pragma once

namespace sardonyx::host {

/// Chooses between all threads and one for repeated runs of the same work. Where other processes take the cores, the
/// calling thread has finished a loop alone before a worker gets a core. Such workers are of no use, and they keep the
/// kernel from giving the calling thread a core of its own. So a run uses one thread for a while if its thread was
/// often off its core and the process's other threads did little meanwhile.
class SoloChoice {
 public:
  /// Of a run, in seconds: its time, the CPU time of the calling thread, and that of all threads of the process.
  struct Times {
    double wall = 0, cpu = 0, all = 0;
  };
  /// Whether the next run should use one thread.
  bool solo() const { return left_ > 0; }
  /// Whether add() wants the next run's times: of short runs some do, since reading the clocks takes some microseconds.
  bool wanted();
  /// Takes the times of a run for which wanted() was true.
  void add(Times run);

 private:
  int unmeasured_ = 0;          ///< runs since the last one whose times were taken
  bool short_ = false;          ///< the last one was
  float lonely_ = 0;            ///< share of recent runs with all threads whose calling thread was left alone
  double hold_ = 0, left_ = 0;  ///< seconds of runs that use one thread: from the last decision on, and from now on
  double quiet_ = 0;            ///< seconds for which runs with one thread have had their core
};

/// One run as the choice wants it: loops of this thread, including oneDNN's, stay in it if the choice is one thread.
class SoloRun {
 public:
  explicit SoloRun(SoloChoice& choice);
  ~SoloRun();
  SoloRun(const SoloRun&) = delete;
  SoloRun& operator=(const SoloRun&) = delete;

 private:
  SoloChoice* measured_;  ///< null if the choice doesn't want this run's times
  SoloChoice::Times start_;
  bool before_;
};

}  // namespace sardonyx::host
