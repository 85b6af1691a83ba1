// Parts of ONNX Runtime's interface that are newer than the headers of the build (1.23). Its structs only grow, and
// each side reports its version, so these declarations may be used with runtimes that report at least that version.
// With newer headers the build uses theirs.
#pragma once
#include <onnxruntime_c_api.h>

#include <cstddef>
#include <cstdint>

namespace sardonyx::ep {

/// The newest version of the interface that this plugin uses.
inline constexpr std::uint32_t kNewestApi = 25;

#if ORT_API_VERSION < 25

struct OrtProfilingEvent;            // opaque
struct OrtProfilingEventsContainer;  // opaque

/// Categories of profiling events, 1.25.
inline constexpr int kProfilingEventKernel = 2;

/// A provider's part in a profile, 1.25.
struct OrtEpProfilerImpl {
  std::uint32_t ort_version_supported;
  void (*Release)(OrtEpProfilerImpl*) noexcept;
  OrtStatus* (*StartProfiling)(OrtEpProfilerImpl*, std::int64_t ep_profiling_start_offset_ns) noexcept;
  OrtStatus* (*StartEvent)(OrtEpProfilerImpl*, std::uint64_t correlation) noexcept;
  OrtStatus* (*StopEvent)(OrtEpProfilerImpl*, std::uint64_t correlation, const OrtProfilingEvent*) noexcept;
  OrtStatus* (*EndProfiling)(OrtEpProfilerImpl*, OrtProfilingEventsContainer*) noexcept;
};

struct LaterApi : OrtApi {
  // 1.24
  bool (*TensorTypeAndShape_HasShape)(const OrtTensorTypeAndShapeInfo*) noexcept;
  void* others_1_24[23];
  OrtStatus* (*GetTensorElementTypeAndShapeDataReference)(const OrtValue*, ONNXTensorElementDataType*,
                                                          const std::int64_t** dims, std::size_t* rank) noexcept;
};

struct LaterEp : OrtEp {
  // 1.24
  OrtStatus* (*GetKernelRegistry)(OrtEp*, const void**) noexcept;
  OrtStatus* (*IsConcurrentRunSupported)(OrtEp*, bool*) noexcept;
  // 1.25
  OrtStatus* (*Sync)(OrtEp*) noexcept;
  OrtStatus* (*CreateProfiler)(OrtEp*, OrtEpProfilerImpl**) noexcept;
};

struct LaterEpApi : OrtEpApi {
  // 1.24
  OrtStatus* (*CreateHardwareDevice)(OrtHardwareDeviceType, std::uint32_t vendor_id, std::uint32_t device_id,
                                     const char* vendor_name, const OrtKeyValuePairs* metadata,
                                     OrtHardwareDevice**) noexcept;
  void (*ReleaseHardwareDevice)(OrtHardwareDevice*);
  void* kernels_1_24[32];  // kernel registries and helpers, which a compiling provider does not use
  // 1.25
  void* op_schemas_1_25[15];
  OrtStatus* (*CreateProfilingEvent)(int category, std::int32_t process_id, std::int32_t thread_id, const char* name,
                                     std::int64_t timestamp_us, std::int64_t duration_us, const char* const* arg_keys,
                                     const char* const* arg_values, std::size_t num_args,
                                     OrtProfilingEvent** out) noexcept;
  void (*ReleaseProfilingEvent)(OrtProfilingEvent*);
  void* profiling_event_readers[5];
  OrtStatus* (*ProfilingEventsContainer_AddEvents)(OrtProfilingEventsContainer*, const OrtProfilingEvent* const*,
                                                   std::size_t) noexcept;
};

#else

inline constexpr OrtProfilingEventCategory kProfilingEventKernel = OrtProfilingEventCategory_KERNEL;
using LaterApi = ::OrtApi;
using LaterEp = ::OrtEp;
using LaterEpApi = ::OrtEpApi;

#endif

}  // namespace sardonyx::ep
