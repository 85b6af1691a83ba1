# oneDNN (gemm and convolution on the host CPU): version 3 on oneTBB's threads, as the packages onednn-cpu-tbb and
# onednn-devel-cpu-tbb install it. Older versions have no channels-last AVX2 kernels. The library is copied
# into build/lib, so that the build tree and a package made of it need no other copy (onednn_libraries.py).
set(SARDONYX_ONEDNN_ROOT "" CACHE PATH "folder with include/oneapi/dnnl and lib/libdnnl.so.3; empty: the Python environment's, else the system's")
execute_process(  # the folder into which pip put the packages; pip install . has it outside the environment
  COMMAND ${SARDONYX_PYTHON_EXECUTABLE} -c
          "import importlib.metadata as m; print([f.locate().resolve().parents[3] for f in m.files('onednn-devel-cpu-tbb') if str(f).endswith('oneapi/dnnl/dnnl.hpp')][0], end='')"
  OUTPUT_VARIABLE onednn_python_prefix ERROR_QUIET)
set(onednn_hints ${SARDONYX_ONEDNN_ROOT} ${onednn_python_prefix})
find_path(SARDONYX_ONEDNN_INCLUDE oneapi/dnnl/dnnl.hpp HINTS ${onednn_hints} PATH_SUFFIXES include NO_CACHE)
find_file(SARDONYX_ONEDNN_LIBRARY libdnnl.so.3 HINTS ${onednn_hints} PATHS /usr/local /usr PATH_SUFFIXES lib lib64 lib/x86_64-linux-gnu NO_CACHE)

if(NOT SARDONYX_ONEDNN_INCLUDE OR NOT SARDONYX_ONEDNN_LIBRARY)
  message(FATAL_ERROR "oneDNN 3 was not found: run ./dev setup, or pass -DSARDONYX_ONEDNN_ROOT=<folder with include/ and lib/libdnnl.so.3>")
endif()
file(STRINGS ${SARDONYX_ONEDNN_INCLUDE}/oneapi/dnnl/dnnl_version.h onednn_major REGEX "define DNNL_VERSION_MAJOR")
file(STRINGS ${SARDONYX_ONEDNN_INCLUDE}/oneapi/dnnl/dnnl_config.h onednn_runtime REGEX "define DNNL_CPU_RUNTIME")
if(NOT onednn_major MATCHES " 3$" OR NOT onednn_runtime MATCHES "DNNL_RUNTIME_TBB")
  message(FATAL_ERROR "oneDNN in ${SARDONYX_ONEDNN_INCLUDE} is not version 3 with the TBB runtime: run ./dev setup, or set SARDONYX_ONEDNN_ROOT")
endif()

file(MAKE_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
file(REAL_PATH ${SARDONYX_ONEDNN_LIBRARY} onednn_file)
execute_process(
  COMMAND ${SARDONYX_PYTHON_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/onednn_libraries.py ${onednn_file} ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libdnnl.so.3
  COMMAND_ERROR_IS_FATAL ANY)
set(SARDONYX_ONEDNN_FILE ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libdnnl.so.3)
