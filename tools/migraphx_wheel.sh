#!/usr/bin/env bash
# tools/migraphx_wheel.sh VENV [VERSION]: a virtual environment with ONNX Runtime's build for MIGraphX, unmodified, in which
# tests/python/test_migraphx_c.py runs it on our library. It can't be in the environment of the other tests: both packages
# are the module onnxruntime. Does nothing if it exists.
set -euo pipefail
venv=$1
version=${2:-1.27.1}
stamp=$venv/.onnxruntime-migraphx
if [[ -f $stamp && $(<"$stamp") == "$version" ]]; then exit 0; fi
rm -f "$stamp"
/usr/bin/python3 -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "onnxruntime-migraphx==$version" numpy==2.4.6 \
  ml_dtypes==0.6.0 onnx==1.23.2 pytest==9.2.0
echo "$version" >"$stamp"
