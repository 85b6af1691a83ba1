// Activation functions of RNN, GRU and LSTM: codes in the parameters of the routine "recurrent", which the operators
// write and its host and GPU implementations read. Freestanding: no includes.
#pragma once

namespace sdx {

enum class RecurrentActivation : int {
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

}  // namespace sdx
