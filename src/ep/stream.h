// Streams of ONNX Runtime's over a card's.
#pragma once
#include <memory>

#include "ep/card.h"
#include "ep/ort.h"

namespace sardonyx::ep {

class Stream : public OrtSyncStreamImpl {
 public:
  /// `handle`: the application's own stream; null: a new one.
  Stream(const Ort& ort, std::shared_ptr<Card> card, void* handle);

 private:
  class Notification;
  const Ort& ort_;
  std::shared_ptr<Card> card_;
  std::shared_ptr<void> own_;
  void* handle_;
};

}  // namespace sardonyx::ep
