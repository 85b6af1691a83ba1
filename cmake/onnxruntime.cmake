# ONNX Runtime's C headers, for the plugin execution provider (src/ep). Of the runtime itself nothing is needed: it loads the
# plugin, and hands it its functions. Looked for in SARDONYX_ONNXRUNTIME_INCLUDE, beside the Python that builds (where
# ./dev setup puts them) and in the system; else fetched into the build folder.
set(SARDONYX_ONNXRUNTIME_INCLUDE "" CACHE PATH "folder with onnxruntime_ep_c_api.h, of ONNX Runtime 1.23 or later; empty: found or fetched")
execute_process(COMMAND ${SARDONYX_PYTHON_EXECUTABLE} -c "import sys; print(sys.prefix, end='')" OUTPUT_VARIABLE python_prefix)
find_path(onnxruntime_include onnxruntime_ep_c_api.h
  HINTS ${SARDONYX_ONNXRUNTIME_INCLUDE} ${python_prefix}/include/onnxruntime ${PROJECT_SOURCE_DIR}/.venv/include/onnxruntime
        ${PROJECT_BINARY_DIR}/onnxruntime
  PATH_SUFFIXES onnxruntime onnxruntime/core/session NO_CACHE)
if(NOT onnxruntime_include AND NOT SARDONYX_ONNXRUNTIME_INCLUDE)
  message(STATUS "Fetching ONNX Runtime's headers")
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/onnxruntime_headers.sh ${PROJECT_BINARY_DIR}/onnxruntime RESULT_VARIABLE fetched)
  if(fetched EQUAL 0)
    set(onnxruntime_include ${PROJECT_BINARY_DIR}/onnxruntime)
  endif()
endif()
if(NOT onnxruntime_include)
  message(FATAL_ERROR "ONNX Runtime's headers (onnxruntime_ep_c_api.h) were not found: run ./dev setup, pass "
    "-DSARDONYX_ONNXRUNTIME_INCLUDE=<the folder include of an ONNX Runtime release>, or do without the provider: -DSARDONYX_EP=OFF")
endif()
file(STRINGS ${onnxruntime_include}/onnxruntime_c_api.h onnxruntime_api REGEX "^#define ORT_API_VERSION ")
string(REGEX REPLACE "[^0-9]" "" onnxruntime_api "${onnxruntime_api}")
if(onnxruntime_api LESS 23)
  message(FATAL_ERROR "${onnxruntime_include} is of ONNX Runtime 1.${onnxruntime_api}; 1.23 or later is needed")
endif()
