#!/usr/bin/env bash
# tools/sanitize_provider.sh thread|address PYTHON: builds the library and the provider with a sanitizer into build-KIND and
# runs the provider's tests in PYTHON (with onnxruntime, numpy, onnx, pytest). ONNX Runtime itself is not instrumented, so what
# it alone does is not reported; code that is compiled at run time is not either.
set -euo pipefail
kind=${1:?thread or address}
python=$(realpath -s "${2:-.venv/bin/python}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build-$kind
cmake -G Ninja -B "$build" -S . -DSARDONYX_PYTHON_EXECUTABLE="$python" -DSARDONYX_TESTS=OFF \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS="-fsanitize=$kind -fno-omit-frame-pointer" \
  -DCMAKE_SHARED_LINKER_FLAGS="-fsanitize=$kind" -DCMAKE_EXE_LINKER_FLAGS="-fsanitize=$kind"
ninja -C "$build" amdgpu-ep python_package
run_time=$(g++ -print-file-name="lib$([[ $kind == thread ]] && echo tsan || echo asan).so")
export ASAN_OPTIONS=detect_leaks=0:halt_on_error=1  # Python's own blocks would be leaks
export TSAN_OPTIONS=halt_on_error=1:report_signal_unsafe=0:ignore_noninstrumented_modules=1
PYTHONPATH=$build/python LD_PRELOAD=$run_time exec "$python" -m pytest tests/python/test_ep.py -q \
  -k "threads or sizes or control_flow or bound or ahead"
