#!/usr/bin/env bash
# tools/sanitize_provider.sh thread|address [PYTEST OPTIONS]: builds the provider and the components of the library that run models with
# a sanitizer, into build-thread or build-address, and runs the provider's tests under it, on the host and on the simulated
# card. The first report ends the run. The compiler's components, the simulator, ONNX Runtime, oneDNN and code that is compiled at run
# time are not instrumented: the sanitizer sees their locks, but not their accesses.
set -euo pipefail
kind=${1:?thread or address}
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$PWD/.venv/bin/python
build=build-$kind
cmake -G Ninja -B "$build" -S . -DSARDONYX_PYTHON_EXECUTABLE="$python" -DSARDONYX_TESTS=OFF -DSARDONYX_SIM=OFF \
  -DCMAKE_BUILD_TYPE=Release -DSARDONYX_SANITIZE="$kind" >/dev/null
jobs=${SARDONYX_JOBS:-$(nproc)}
ninja -C "$build" -j "$jobs" amdgpu-ep python_package
ninja -C build -j "$jobs" amdhip64-sim sardonyx_cli # as they are: under a sanitizer, kernels would take ten times as long
ln -sfn ../../build/lib/libamdhip64-sim.so "$build/lib/libamdhip64-sim.so"
run_time=$(g++ -print-file-name="lib$([[ $kind == thread ]] && echo tsan || echo asan).so")
# Python and ONNX Runtime do not free everything; test_ep_process.py measures what a cycle of loading and unloading leaks.
# LLVM sets another signal stack for compiling threads, which AddressSanitizer would free as if it were its own.
export ASAN_OPTIONS=use_sigaltstack=0:detect_leaks=0:halt_on_error=1:abort_on_error=1:detect_odr_violation=0:log_path=$PWD/$build/report
export TSAN_OPTIONS=halt_on_error=1:ignore_noninstrumented_modules=1:exitcode=66:log_path=$PWD/$build/report:suppressions=$PWD/tools/sanitize_provider.supp
export PYTHONPATH=$PWD/$build/python OPENBLAS_NUM_THREADS=1  # the sanitizer does not see its threads synchronise
# libstdc++ too, else a sanitizer that is preloaded into Python does not find the exception functions.
libraries="$run_time $(g++ -print-file-name=libstdc++.so.6)"
rm -f "$build"/report.*
status=0
LD_PRELOAD=$libraries "$python" -m pytest -q tests/python/test_ep.py tests/python/test_ep_compiled.py tests/python/test_ep_process.py tests/python/test_calibrated.py "$@" || status=$?
cat "$build"/report.* 2>/dev/null && exit 1
exit $status
