// libFuzzer target: any bytes, as a TFLite file. They must be refused with an Error that is not an internal one, or
// give a Model that keeps every promise of model/model.h. Seeds are the files of tests/data/tflite.
#include <cstdint>
#include <span>

#include "model_promises.h"
#include "support/error.h"
#include "tflite/load.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sardonyx;
  try {
    fuzz::verify(tflite::parse(std::as_bytes(std::span(data, size))).graph, {});
  } catch (const Error& e) {
    fuzz::require(e.kind() == ErrorKind::kInvalidModel || e.kind() == ErrorKind::kUnsupported, e.what());
  }
  return 0;
}
