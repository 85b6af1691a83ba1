# The Python that builds and tests use, and the ONNX format's own definition inside its onnx package.
# ./dev setup makes .venv; -DSARDONYX_PYTHON_EXECUTABLE=... takes another one.
if(SKBUILD AND NOT SARDONYX_PYTHON_EXECUTABLE)
  set(SARDONYX_PYTHON_EXECUTABLE ${Python_EXECUTABLE})  # pip install . builds for the Python that runs it
endif()
find_program(SARDONYX_PYTHON_EXECUTABLE NAMES python3 HINTS ${PROJECT_SOURCE_DIR}/.venv/bin NO_CACHE)
set(SARDONYX_PYTHON_EXECUTABLE ${SARDONYX_PYTHON_EXECUTABLE} CACHE FILEPATH "Python with the onnx package (and numpy, nanobind for the bindings)")

if(NOT SARDONYX_ONNX_PROTO)
  execute_process(
    COMMAND ${SARDONYX_PYTHON_EXECUTABLE} -c
            "import importlib.util as u, os; print(os.path.join(os.path.dirname(u.find_spec('onnx').origin), 'onnx-ml.proto'), end='')"
    OUTPUT_VARIABLE onnx_proto RESULT_VARIABLE onnx_proto_result ERROR_VARIABLE onnx_proto_error)
  if(NOT onnx_proto_result EQUAL 0 OR NOT EXISTS "${onnx_proto}")
    message(FATAL_ERROR "no onnx package in ${SARDONYX_PYTHON_EXECUTABLE}: run ./dev setup, or pass "
      "-DSARDONYX_PYTHON_EXECUTABLE=<python with onnx> or -DSARDONYX_ONNX_PROTO=<onnx-ml.proto>\n${onnx_proto_error}")
  endif()
  set(SARDONYX_ONNX_PROTO ${onnx_proto} CACHE FILEPATH "onnx-ml.proto of the onnx package" FORCE)
endif()
