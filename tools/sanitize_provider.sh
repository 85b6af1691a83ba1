#!/usr/bin/env bash
# tools/sanitize_provider.sh thread|address [PYTEST OPTIONS]: builds the library and the provider with a sanitizer into
# build-thread or build-address, and runs the provider's tests under it, on the host and on the simulated card. The first
# report ends the run. The simulator itself, ONNX Runtime, oneDNN and code that is compiled at run time are not instrumented:
# their locks are seen, their own accesses are not.
set -euo pipefail
kind=${1:?thread or address}
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$PWD/.venv/bin/python
build=build-$kind
cmake -G Ninja -B "$build" -S . -DSARDONYX_PYTHON_EXECUTABLE="$python" -DSARDONYX_TESTS=OFF -DSARDONYX_SIM=OFF \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" \
  -DCMAKE_CXX_FLAGS="-fsanitize=$kind -fno-omit-frame-pointer -Wno-tsan" -DCMAKE_SHARED_LINKER_FLAGS="-fsanitize=$kind" \
  -DCMAKE_MODULE_LINKER_FLAGS="-fsanitize=$kind" -DCMAKE_EXE_LINKER_FLAGS="-fsanitize=$kind" >/dev/null
ninja -C "$build" ${SARDONYX_JOBS:+-j "$SARDONYX_JOBS"} amdgpu-ep python_package
ninja -C build amdhip64-sim  # as it is: it checks kernels, and would take ten times as long
ln -sf ../../build/lib/libamdhip64-sim.so "$build/lib/"
run_time=$(g++ -print-file-name="lib$([[ $kind == thread ]] && echo tsan || echo asan).so")
# Python's own blocks would be leaks; test_ep.py measures leaks by itself, and is told that freed memory is kept a while here.
export ASAN_OPTIONS=detect_leaks=0:halt_on_error=1:abort_on_error=1:detect_odr_violation=0
export TSAN_OPTIONS=halt_on_error=1:exitcode=66:suppressions=$PWD/tools/tsan.supp
export SARDONYX_SANITIZER=$kind PYTHONPATH=$PWD/$build/python
LD_PRELOAD="$run_time $(g++ -print-file-name=libstdc++.so)" exec "$python" -m pytest -q -p no:faulthandler tests/python/test_ep.py tests/python/test_calibrated.py "$@"
