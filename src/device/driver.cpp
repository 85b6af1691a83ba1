// Opening drivers.
#include "device/driver.h"

#include <dlfcn.h>

#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <string_view>

#include "device/advice.h"
#include "support/error.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

void* open_first(std::initializer_list<const char*> names, std::string& tried) {
  for (const char* n : names) {
    if (void* library = dlopen(n, RTLD_NOW | RTLD_LOCAL)) return library;
    tried += (tried.empty() ? "" : ", ") + std::string(n);
  }
  return nullptr;
}

/// What to open, and what to install if it is too old.
struct Needed {
  const char *driver, *remedy;
};
constexpr Needed kHip{"HIP", "ROCm 5.7 or newer"}, kSimulatedHip{"simulated HIP", "the simulator of this version"},
    kCuda{"CUDA", "NVIDIA's driver 520 (CUDA 11.8) or newer"};

template <typename F>
void find(void* library, F*& to, std::initializer_list<const char*> names, const Needed& needed) {
  for (const char* n : names)
    if (void* f = dlsym(library, n)) {
      to = reinterpret_cast<F*>(f);
      return;
    }
  fail(ErrorKind::kDevice, "the {} driver has no {}: it is too old; install {}", needed.driver, *names.begin(),
       needed.remedy);
}

/// The same for functions that some versions lack: null if none of the names exists.
template <typename F>
void find_newer(void* library, F*& to, const char* name) {
  to = reinterpret_cast<F*>(dlsym(library, name));
}

void fill_hip(Driver& d, void* library) {
  find(library, d.init, {"hipInit"}, kHip);
  find(library, d.device_count, {"hipGetDeviceCount"}, kHip);
  find(library, d.device_name, {"hipDeviceGetName"}, kHip);
  find(library, d.total_memory, {"hipDeviceTotalMem"}, kHip);
  find(library, d.attribute, {"hipDeviceGetAttribute"}, kHip);
  find(library, d.malloc, {"hipMalloc"}, kHip);
  find(library, d.free, {"hipFree"}, kHip);
  find(library, d.malloc_pinned, {"hipHostMalloc"}, kHip);
  find(library, d.free_pinned, {"hipHostFree"}, kHip);
  find(library, d.upload, {"hipMemcpyHtoDAsync"}, kHip);
  find(library, d.download, {"hipMemcpyDtoHAsync"}, kHip);
  find(library, d.copy, {"hipMemcpyDtoDAsync"}, kHip);
  find(library, d.memory_info, {"hipMemGetInfo"}, kHip);
  find(library, d.module_load, {"hipModuleLoadData"}, kHip);
  find(library, d.module_unload, {"hipModuleUnload"}, kHip);
  find(library, d.module_function, {"hipModuleGetFunction"}, kHip);
  find(library, d.launch, {"hipModuleLaunchKernel"}, kHip);
  find(library, d.stream_create, {"hipStreamCreateWithFlags"}, kHip);
  find(library, d.stream_destroy, {"hipStreamDestroy"}, kHip);
  find(library, d.stream_synchronize, {"hipStreamSynchronize"}, kHip);
  find(library, d.device_synchronize, {"hipDeviceSynchronize"}, kHip);
  find(library, d.stream_wait, {"hipStreamWaitEvent"}, kHip);
  find(library, d.event_create, {"hipEventCreateWithFlags"}, kHip);
  find(library, d.event_destroy, {"hipEventDestroy"}, kHip);
  find(library, d.event_record, {"hipEventRecord"}, kHip);
  find(library, d.event_synchronize, {"hipEventSynchronize"}, kHip);
  find_newer(library, d.graph_create, "hipGraphCreate");
  find_newer(library, d.graph_destroy, "hipGraphDestroy");
  find_newer(library, d.graph_add_kernel, "hipGraphAddKernelNode");
  find_newer(library, d.graph_instantiate, "hipGraphInstantiateWithFlags");
  find_newer(library, d.graph_set_kernel, "hipGraphExecKernelNodeSetParams");
  find_newer(library, d.graph_launch, "hipGraphLaunch");
  find_newer(library, d.graph_release, "hipGraphExecDestroy");
  find_newer(library, d.capture_begin, "hipStreamBeginCapture");
  find_newer(library, d.capture_end, "hipStreamEndCapture");
  find_newer(library, d.graph_add_graph, "hipGraphAddChildGraphNode");
  find_newer(library, d.graph_set_graph, "hipGraphExecChildGraphNodeSetParams");
  find(library, d.set_device, {"hipSetDevice"}, kHip);
  find(library, d.get_device, {"hipGetDevice"}, kHip);
  find(library, d.properties, {"hipGetDevicePropertiesR0600", "hipGetDeviceProperties"}, kHip);
  find(library, d.hip_error, {"hipGetErrorString"}, kHip);
}

void fill_cuda(Driver& d, void* library) {
  d.form = &cuda_form();
  find(library, d.init, {"cuInit"}, kCuda);
  find(library, d.device_count, {"cuDeviceGetCount"}, kCuda);
  find(library, d.device_name, {"cuDeviceGetName"}, kCuda);
  find(library, d.version, {"cuDriverGetVersion"}, kCuda);
  find(library, d.total_memory, {"cuDeviceTotalMem_v2"}, kCuda);
  find(library, d.attribute, {"cuDeviceGetAttribute"}, kCuda);
  find(library, d.malloc, {"cuMemAlloc_v2"}, kCuda);
  find(library, d.free, {"cuMemFree_v2"}, kCuda);
  find(library, d.malloc_pinned, {"cuMemHostAlloc"}, kCuda);
  find(library, d.free_pinned, {"cuMemFreeHost"}, kCuda);
  find(library, d.upload, {"cuMemcpyHtoDAsync_v2"}, kCuda);
  find(library, d.download, {"cuMemcpyDtoHAsync_v2"}, kCuda);
  find(library, d.copy, {"cuMemcpyDtoDAsync_v2"}, kCuda);
  find(library, d.memory_info, {"cuMemGetInfo_v2"}, kCuda);
  find(library, d.module_load, {"cuModuleLoadData"}, kCuda);
  find(library, d.module_unload, {"cuModuleUnload"}, kCuda);
  find(library, d.module_function, {"cuModuleGetFunction"}, kCuda);
  find(library, d.launch, {"cuLaunchKernel"}, kCuda);
  find(library, d.stream_create, {"cuStreamCreate"}, kCuda);
  find(library, d.stream_destroy, {"cuStreamDestroy_v2"}, kCuda);
  find(library, d.stream_synchronize, {"cuStreamSynchronize"}, kCuda);
  find(library, d.device_synchronize, {"cuCtxSynchronize"}, kCuda);
  find(library, d.stream_wait, {"cuStreamWaitEvent"}, kCuda);
  find(library, d.event_create, {"cuEventCreate"}, kCuda);
  find(library, d.event_destroy, {"cuEventDestroy_v2"}, kCuda);
  find(library, d.event_record, {"cuEventRecord"}, kCuda);
  find(library, d.event_synchronize, {"cuEventSynchronize"}, kCuda);
  find(library, d.set_function_attribute, {"cuFuncSetAttribute"}, kCuda);
  find_newer(library, d.graph_create, "cuGraphCreate");
  find_newer(library, d.graph_destroy, "cuGraphDestroy");
  find_newer(library, d.graph_add_kernel, "cuGraphAddKernelNode");
  find_newer(library, d.graph_add_order, "cuGraphAddDependencies_v2");
  find_newer(library, d.graph_instantiate, "cuGraphInstantiateWithFlags");
  find_newer(library, d.graph_set_kernel, "cuGraphExecKernelNodeSetParams");
  find_newer(library, d.graph_launch, "cuGraphLaunch");
  find_newer(library, d.graph_release, "cuGraphExecDestroy");
  find_newer(library, d.capture_begin, "cuStreamBeginCapture_v2");
  find_newer(library, d.capture_end, "cuStreamEndCapture");
  find_newer(library, d.graph_add_graph, "cuGraphAddChildGraphNode");
  find_newer(library, d.graph_set_graph, "cuGraphExecChildGraphNodeSetParams");
  find(library, d.retain_context, {"cuDevicePrimaryCtxRetain"}, kCuda);
  find(library, d.set_context, {"cuCtxSetCurrent"}, kCuda);
  find(library, d.get_context, {"cuCtxGetCurrent"}, kCuda);
  find(library, d.cuda_error, {"cuGetErrorString"}, kCuda);
  find_newer(library, d.encode_tensor_map, "cuTensorMapEncodeTiled");
  find_newer(library, d.encode_windows_map, "cuTensorMapEncodeIm2col");
  find(library, d.ipc_handle, {"cuIpcGetMemHandle"}, kCuda);
  find(library, d.ipc_open, {"cuIpcOpenMemHandle_v2"}, kCuda);
  find(library, d.ipc_close, {"cuIpcCloseMemHandle"}, kCuda);
}

}  // namespace

std::string Driver::error(int code) const {
  if (last_failure)
    if (const char* why = last_failure(); why && *why) return why;
  if (hip_error) {
    const char* text = hip_error(code);
    return text ? text : std::to_string(code);
  }
  const char* text = nullptr;
  if (cuda_error && cuda_error(code, &text) == 0 && text) return text;
  return "error " + std::to_string(code);
}

void Driver::require(int code, const char* what) const {
  if (code != 0) fail(ErrorKind::kDevice, "{}: {} failed: {}", name, what, error(code));
}

const Driver& hip_driver() {
  static const Driver driver = [] {
    Driver d;
    d.name = "hip";
    std::string tried;
    void* library = open_first({"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"}, tried);
    if (!library) library = open_first({"/opt/rocm/lib/libamdhip64.so"}, tried);
    if (!library)
      fail(ErrorKind::kDevice,
           "hip: AMD's driver library is not installed ({}); install ROCm's HIP run time (hip-runtime-amd, 5.7 or "
           "newer), "
           "or name its folder in LD_LIBRARY_PATH",
           tried);
    fill_hip(d, library);
    if (const int code = d.init(0))
      fail(ErrorKind::kDevice, "hip: the driver can't be used: {}{}", d.error(code), amd_advice());
    return d;
  }();
  return driver;
}

const Driver& cuda_driver() {
  static const Driver driver = [] {
    Driver d;
    d.name = "cuda";
    std::string tried;
    void* library = open_first({"libcuda.so.1", "libcuda.so"}, tried);
    if (!library)
      fail(ErrorKind::kDevice, "cuda: NVIDIA's driver library is not installed ({}); install NVIDIA's driver", tried);
    fill_cuda(d, library);
    if (const int code = d.init(0))
      fail(ErrorKind::kDevice, "cuda: the driver can't be used: {}{}", d.error(code), nvidia_advice());
    return d;
  }();
  return driver;
}

const std::vector<std::string>& sim_chips() {
  static const std::vector<std::string> chips = amd_chips();
  return chips;
}

const Driver& sim_driver() {
  static const Driver driver = [] {
    Dl_info info{};
    std::filesystem::path folder;
    std::error_code ignored;
    if (dladdr(reinterpret_cast<void*>(&sim_driver), &info) != 0 && info.dli_fname != nullptr)
      folder = std::filesystem::weakly_canonical(info.dli_fname, ignored).parent_path();
    const std::filesystem::path path = folder / "libamdhip64-sim.so";
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* why = dlerror();
      fail(ErrorKind::kDevice, "sim: the simulator can't be loaded: {}", why ? why : path.string());
    }
    Driver d;
    d.name = "sim";
    fill_hip(d, library);
    find(library, d.configure_simulator, {"sardonyxSimConfigure"}, kSimulatedHip);
    find(library, d.forget_simulated, {"sardonyxSimResetSummary"}, kSimulatedHip);
    find(library, d.simulated_launches, {"sardonyxSimTiming"}, kSimulatedHip);
    find(library, d.simulated_timeline, {"sardonyxSimTimeline"}, kSimulatedHip);
    find(library, d.last_failure, {"sardonyxSimLastFailure"}, kSimulatedHip);
    find(library, d.simulated_microseconds, {"sardonyxSimMicroseconds"}, kSimulatedHip);
    if (d.configure_simulator(fmt::format("{{\"chips\": [\"{}\"]}}", fmt::join(sim_chips(), "\", \"")).c_str()) != 0)
      fail(ErrorKind::kDevice, "sim: {}", d.last_failure());
    d.require(d.init(0), "hipInit");
    return d;
  }();
  return driver;
}

}  // namespace sardonyx
