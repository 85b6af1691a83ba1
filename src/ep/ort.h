// A wrapper of ONNX Runtime's C interface, one object per runtime that loads the plugin. Errors become sardonyx::Error,
// lists become vectors. No exception may reach the runtime: guarded() converts them to statuses.
#pragma once
#include <onnxruntime_c_api.h>

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "ep/later_api.h"
#include "support/error.h"

namespace sardonyx::ep {

/// The name of the provider everywhere: in registration, logs, profiles and errors.
inline constexpr char kProvider[] = "AMDGPUExecutionProvider";

class Ort {
 public:
  /// Throws Error(kUnsupported) for runtimes before 1.23.
  explicit Ort(const OrtApiBase* base);

  const OrtApi* operator->() const { return api_; }
  const OrtEpApi& ep() const { return *ep_; }
  const OrtModelEditorApi& editor() const { return *editor_; }
  /// Null below 1.24. Members of 1.25 only if version() says so.
  const LaterEpApi* later() const { return later_; }
  /// 23 for ONNX Runtime 1.23.
  std::uint32_t version() const { return version_; }

  /// Throws Error(kInternal) with the status's text, and releases it.
  void require(OrtStatus* status) const;
  OrtStatus* status(const std::exception& e) const noexcept;
  /// Runs `f` and converts what it throws to a status.
  template <typename F>
  OrtStatus* guarded(F&& f) const noexcept {
    try {
      f();
      return nullptr;
    } catch (const std::exception& e) {
      return status(e);
    }
  }

  // ---- graphs
  std::vector<const OrtNode*> nodes(const OrtGraph* g) const;
  std::vector<const OrtValueInfo*> inputs(const OrtGraph* g) const;
  std::vector<const OrtValueInfo*> outputs(const OrtGraph* g) const;
  std::vector<const OrtValueInfo*> initializers(const OrtGraph* g) const;
  const OrtNode* parent(const OrtGraph* g) const;
  std::string model_path(const OrtGraph* g) const;

  // ---- nodes
  std::size_t id(const OrtNode* n) const;
  std::string name(const OrtNode* n) const;
  std::string op(const OrtNode* n) const;
  std::string domain(const OrtNode* n) const;
  std::string ep_name(const OrtNode* n) const;                      ///< "" if not assigned yet
  std::vector<const OrtValueInfo*> inputs(const OrtNode* n) const;  ///< null where omitted
  std::vector<const OrtValueInfo*> outputs(const OrtNode* n) const;
  std::vector<const OrtValueInfo*> captured(const OrtNode* n) const;  ///< outer values that nested graphs read
  std::vector<const OrtOpAttr*> attributes(const OrtNode* n) const;
  struct Nested {
    std::string attribute;
    const OrtGraph* graph;
  };
  std::vector<Nested> nested(const OrtNode* n) const;

  // ---- values
  std::string name(const OrtValueInfo* v) const;
  bool is_constant(const OrtValueInfo* v) const;
  /// Whether the shape is known. Before 1.24 the runtime does not distinguish a scalar from a tensor of unknown rank,
  /// and the result is false for both.
  bool has_shape(const OrtTensorTypeAndShapeInfo* t, std::size_t rank) const;
  /// A tensor's dims, written to `dims` to reuse its memory.
  void dims(const OrtValue* v, std::vector<std::int64_t>& dims) const;
  /// Whether ONNX Runtime's description of the tensor says that it is in GPU memory.
  bool on_device(const OrtValue* v) const;

 private:
  const OrtApi* api_ = nullptr;
  const OrtEpApi* ep_ = nullptr;
  const OrtModelEditorApi* editor_ = nullptr;
  const LaterApi* later_api_ = nullptr;
  const LaterEpApi* later_ = nullptr;
  std::uint32_t version_ = 0;
};

/// Writes to ONNX Runtime's log; each message begins with the provider's name.
class Log {
 public:
  Log(const Ort& ort, const OrtLogger* logger) : ort_(&ort), logger_(logger) {}

  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    write(ORT_LOGGING_LEVEL_INFO, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) const {
    write(ORT_LOGGING_LEVEL_WARNING, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) const {
    write(ORT_LOGGING_LEVEL_ERROR, fmt::format(format, std::forward<Args>(args)...));
  }
  void write(OrtLoggingLevel level, const std::string& text) const noexcept;

 private:
  const Ort* ort_;
  const OrtLogger* logger_;
};

}  // namespace sardonyx::ep
