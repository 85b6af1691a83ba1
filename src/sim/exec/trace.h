// Trace of one chosen wave: every executed instruction with the registers it wrote.
#pragma once
#include <cstdio>

#include "sim/exec/launch.h"
#include "sim/exec/wave.h"

namespace sardonyx::sim {

class Tracer {
 public:
  /// The tracer when the configuration asks for this wave, else null.
  static const Tracer* of(const Launch& launch, const Wave& w);
  void print(Wave& w, const Inst& in) const;

 private:
  std::FILE* file_ = nullptr;
};

}  // namespace sardonyx::sim
