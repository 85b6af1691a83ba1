// What ONNX Runtime gets when it loads the library: the devices there are, and providers for sessions.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ep/card.h"
#include "ep/memory.h"
#include "ep/ort.h"

namespace sardonyx::ep {

class Factory : public OrtEpFactory {
 public:
  /// `devices`: which to offer, as find_cards() takes them.
  Factory(const OrtApiBase* base, const OrtLogger* logger, const std::string& devices);
  ~Factory();

 private:
  void supported(const OrtHardwareDevice* const* hardware, std::size_t count, OrtEpDevice** out, std::size_t room,
                 std::size_t* n);
  const OrtHardwareDevice* hardware_of(const Card& card, const OrtHardwareDevice* const* hardware, std::size_t count);
  OrtEp* create(const OrtKeyValuePairs* const* metadata, std::size_t count, const OrtSessionOptions* options,
                const OrtLogger* logger);
  OrtAllocator* allocator(const OrtMemoryInfo* info);
  std::shared_ptr<Card> card_of(const OrtMemoryInfo* info) const;

  Ort ort_;
  Log log_;
  std::vector<std::shared_ptr<Card>> cards_;
  std::vector<OrtMemoryInfo*> infos_;
  std::vector<OrtHardwareDevice*> virtual_;
};

}  // namespace sardonyx::ep
