// Activations of recurrent layers, by the codes that the routine "recurrent" takes.
#pragma once

namespace sardonyx::routines {

enum class Activation {
  kRelu,
  kTanh,
  kSigmoid,
  kAffine,
  kLeakyRelu,
  kThresholdedRelu,
  kScaledTanh,
  kHardSigmoid,
  kElu,
  kSoftsign,
  kSoftplus,
};

}  // namespace sardonyx::routines
