// ONNX Runtime's own functions, found in the libraries that are loaded after this one.
#pragma once
#include <onnxruntime_c_api.h>

#include <cstddef>

namespace sardonyx::ort_shim {

/// The API base of the libonnxruntime.so that is loaded after this library, or else is found by the loader. Ends the
/// process with a message if there is none: every program calls OrtGetApiBase() first, and can't go on without it.
const OrtApiBase& real_base();

/// Functions of the version whose headers this library was built with; ONNX Runtime keeps their places in later ones.
const OrtApi& real_api();

/// How many bytes can be read at `p` in the loaded file that it lies in, at most `wanted`.
std::size_t readable_bytes(const void* p, std::size_t wanted);

/// Registers the plugin with the process's environment, if it is not yet, and adds its device with the id
/// `options["device_id"]` (the first without it) to the session options.
OrtStatus* append_amdgpu(OrtSessionOptions* session, const char* const* keys, const char* const* values,
                         std::size_t count);

/// Gives back the environment that append_amdgpu() holds; called when the application gives back its own.
void release_environment();

}  // namespace sardonyx::ort_shim
