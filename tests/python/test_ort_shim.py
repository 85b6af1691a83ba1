"""libsardonyx_onnxruntime.so: C and C++ programs written for AMD's MIGraphX and ROCm providers, unchanged, on a stock
libonnxruntime.so: linked with it, or with it in LD_PRELOAD."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import sardonyx
from ep_sessions import dense

ort = pytest.importorskip("onnxruntime")
BUILD = Path(sardonyx.__file__).parents[2]
LIBRARY = next((Path(ort.__file__).parent / "capi").glob("libonnxruntime.so*"), None)
HEADERS = Path(sys.prefix) / "include" / "onnxruntime"
pytestmark = pytest.mark.skipif(
    LIBRARY is None or not HEADERS.is_dir() or not shutil.which("g++"),
    reason="needs g++, ONNX Runtime's headers, and a package of it that has libonnxruntime.so",
)

# With ONNX Runtime's C interface; ADD adds the provider to `so`.
C_PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <onnxruntime_c_api.h>
static const OrtApi* api;
static void check(OrtStatus* s) {
  if (!s) return;
  fprintf(stderr, "error: %s\n", api->GetErrorMessage(s));
  exit(1);
}
int main(int argc, char** argv) {
  (void)argc;
  api = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  OrtEnv* env = NULL;
  check(api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "sample", &env));
  char** names = NULL;
  int count = 0, found = 0;
  check(api->GetAvailableProviders(&names, &count));
  for (int k = 0; k < count; ++k) found += !strcmp(names[k], "MIGraphXExecutionProvider") || !strcmp(names[k], "ROCMExecutionProvider");
  check(api->ReleaseAvailableProviders(names, count));
  OrtSessionOptions* so = NULL;
  check(api->CreateSessionOptions(&so));
  check(api->AddSessionConfigEntry(so, "session.disable_cpu_ep_fallback", "1"));
  ADD
  OrtSession* session = NULL;
  check(api->CreateSession(env, argv[1], so, &session));
  float x[24];
  for (int k = 0; k < 24; ++k) x[k] = (float)k - 12;
  const int64_t dims[] = {3, 8};
  OrtMemoryInfo* memory = NULL;
  check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  OrtValue *input = NULL, *output = NULL;
  check(api->CreateTensorWithDataAsOrtValue(memory, x, sizeof x, dims, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &input));
  const char *in = "x", *out = "y";
  check(api->Run(session, NULL, &in, (const OrtValue* const*)&input, 1, &out, 1, &output));
  float* y = NULL;
  check(api->GetTensorMutableData(output, (void**)&y));
  printf("providers %d\n", found);
  for (int k = 0; k < 12; ++k) printf("%.6f ", y[k]);
  printf("\n");
  api->ReleaseValue(output);
  api->ReleaseValue(input);
  api->ReleaseMemoryInfo(memory);
  api->ReleaseSession(session);
  api->ReleaseSessionOptions(so);
  api->ReleaseEnv(env);
  return 0;
}
"""

C_WAYS = {
    "function MIGraphX": "check(OrtSessionOptionsAppendExecutionProvider_MIGraphX(so, 0));",
    "function ROCM": "check(OrtSessionOptionsAppendExecutionProvider_ROCM(so, 0));",
    "struct MIGraphX": """OrtMIGraphXProviderOptions o;
  memset(&o, 0, sizeof o);
  o.migraphx_mem_limit = SIZE_MAX;
  check(api->SessionOptionsAppendExecutionProvider_MIGraphX(so, &o));""",
    "struct ROCM": """OrtROCMProviderOptions* o = NULL;
  check(api->CreateROCMProviderOptions(&o));
  const char* keys[] = {"device_id", "gpu_mem_limit", "arena_extend_strategy", "tunable_op_enable"};
  const char* values[] = {"0", "1073741824", "kSameAsRequested", "1"};
  check(api->UpdateROCMProviderOptions(o, keys, values, 4));
  const char* wrong = "gpu_mem_limt";
  OrtStatus* refused = api->UpdateROCMProviderOptions(o, &wrong, values, 1);
  if (!refused) return 3;
  api->ReleaseStatus(refused);
  OrtAllocator* allocator = NULL;
  char* text = NULL;
  check(api->GetAllocatorWithDefaultOptions(&allocator));
  check(api->GetROCMProviderOptionsAsString(o, allocator, &text));
  if (!strstr(text, "gpu_mem_limit=1073741824") || !strstr(text, "arena_extend_strategy=1")) return 4;
  allocator->Free(allocator, text);
  check(api->SessionOptionsAppendExecutionProvider_ROCM(so, o));
  api->ReleaseROCMProviderOptions(o);""",
    "name": """const char* keys[] = {"migraphx_exhaustive_tune"};
  const char* values[] = {"0"};
  check(api->SessionOptionsAppendExecutionProvider(so, "MIGraphX", keys, values, 1));""",
}

CPP_PROGRAM = r"""
#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>
#include <onnxruntime_cxx_api.h>
extern "C" OrtStatus* OrtSessionOptionsAppendExecutionProvider_ROCm(OrtSessionOptions*, int) noexcept;  // see CPP_WAYS
int main(int, char** argv) {
  Ort::Env env = Ort::Env{ORT_LOGGING_LEVEL_ERROR, "Default"};
  auto names = Ort::GetAvailableProviders();
  int found = 0;
  for (const std::string& n : names) found += n == "MIGraphXExecutionProvider" || n == "ROCMExecutionProvider";
  Ort::SessionOptions so;
  so.AddConfigEntry("session.disable_cpu_ep_fallback", "1");
  ADD
  Ort::Session session(env, argv[1], so);
  std::vector<float> x(24);
  for (int k = 0; k < 24; ++k) x[k] = static_cast<float>(k) - 12;
  const std::int64_t dims[] = {3, 8};
  auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  Ort::Value value = Ort::Value::CreateTensor<float>(memory, x.data(), x.size(), dims, 2);
  const char *in = "x", *out = "y";
  auto results = session.Run(Ort::RunOptions(), &in, &value, 1, &out, 1);
  const float* y = results[0].GetTensorData<float>();
  std::printf("providers %d\n", found);
  for (int k = 0; k < 12; ++k) std::printf("%.6f ", y[k]);
  std::printf("\n");
}
"""

CPP_WAYS = {
    "function": "int device_id = 0;\n  Ort::ThrowOnError(OrtSessionOptionsAppendExecutionProvider_MIGraphX(so, device_id));",
    "struct MIGraphX": "OrtMIGraphXProviderOptions o{};\n  o.migraphx_exhaustive_tune = 0;\n  so.AppendExecutionProvider_MIGraphX(o);",
    "struct ROCM": "OrtROCMProviderOptions o;\n  o.device_id = 0;\n  so.AppendExecutionProvider_ROCM(o);",
    # As the ROCm provider's page spells it; no header declares it.
    "function ROCm": "Ort::ThrowOnError(OrtSessionOptionsAppendExecutionProvider_ROCm(so, 0));",
    "name": 'so.AppendExecutionProvider("ROCM", std::unordered_map<std::string, std::string>{{"device_id", "0"}});',
}


DEVICES = ("host", "sim:gfx1100")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("shim")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (path / name).symlink_to(LIBRARY)
    onnx.save(dense()[1], path / "m.onnx")
    return path


def compile_program(folder, text, add, language, shim=True):
    source = folder / f"program.{language}"
    source.write_text(text.replace("ADD", add))
    compiler = ["gcc", "-std=c11"] if language == "c" else ["g++", "-std=c++17"]
    ours = [f"-L{BUILD / 'lib'}", "-lsardonyx_onnxruntime"] if shim else []
    program = folder / "program"
    done = subprocess.run(
        [*compiler, "-Wall", source, "-o", program, f"-isystem{HEADERS}", *ours, f"-L{folder}", "-lonnxruntime"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return program


def run(folder, program, model="m.onnx", device="host", preload=False, **variables):
    environment = os.environ | {"LD_LIBRARY_PATH": f"{BUILD / 'lib'}:{folder}", "SARDONYX_DEVICE": device} | variables
    if preload:
        preloaded = [str(BUILD / "lib" / "libsardonyx_onnxruntime.so"), os.environ.get("LD_PRELOAD", "")]
        environment["LD_PRELOAD"] = ":".join(reversed([p for p in preloaded if p]))  # a sanitizer must be first
    return subprocess.run([program, folder / model], capture_output=True, text=True, env=environment, timeout=300)


def check(done):
    assert done.returncode == 0, done.stdout + done.stderr
    providers, numbers = done.stdout.splitlines()[:2]
    assert providers == "providers 2"
    x = np.arange(24, dtype=np.float32).reshape(3, 8) - 12
    expected = np.maximum(x @ dense()[0], 0)
    np.testing.assert_allclose(np.array(numbers.split(), float).reshape(3, 4), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("way", C_WAYS)
def test_c_programs(folder, way):
    program = compile_program(folder, C_PROGRAM, C_WAYS[way], "c")
    for device in DEVICES:
        check(run(folder, program, device=device))


@pytest.mark.parametrize("way", CPP_WAYS)
def test_cpp_programs(folder, way):
    program = compile_program(folder, CPP_PROGRAM, CPP_WAYS[way], "cpp")
    for device in DEVICES:
        check(run(folder, program, device=device))


def test_programs_that_were_linked_without_it(folder):
    program = compile_program(folder, CPP_PROGRAM, CPP_WAYS["struct ROCM"], "cpp", shim=False)
    check(run(folder, program, preload=True))
    assert run(folder, program).returncode != 0  # ONNX Runtime itself has no such provider


def test_errors(folder):
    program = compile_program(folder, C_PROGRAM, C_WAYS["name"].replace("exhaustive_tune", "exhaustiv_tune"), "c")
    done = run(folder, program)
    assert done.returncode == 1 and "did you mean 'migraphx_exhaustive_tune'" in done.stderr
    program = compile_program(
        folder, C_PROGRAM, "check(OrtSessionOptionsAppendExecutionProvider_MIGraphX(so, 7));", "c"
    )
    done = run(folder, program)
    assert done.returncode == 1 and "there is no device 7" in done.stderr
    program = compile_program(folder, C_PROGRAM, C_WAYS["function MIGraphX"], "c")
    done = run(folder, program, device="hip:63")
    assert done.returncode == 1 and "no AMD GPU can be used" in done.stderr
    null = "if (!api->SessionOptionsAppendExecutionProvider_MIGraphX(so, NULL)) return 5; " + C_WAYS["function ROCM"]
    check(run(folder, compile_program(folder, C_PROGRAM, null, "c")))
    # An option that the plugin refuses: variables act here too.
    done = run(folder, program, ORT_MIGRAPHX_FP16_ENABLE="perhaps")
    assert done.returncode == 1 and "ORT_MIGRAPHX_FP16_ENABLE" in done.stderr
