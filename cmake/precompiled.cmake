# Most of the time to compile a file here goes into the standard library's headers, so these are compiled once for all files with the
# same options: sardonyx_precompiled(TARGET KIND), where KIND names a line of sardonyx_precompiled_kind below. Files still include what
# they use: tests/fuzz, and any build with clang or with SARDONYX_PRECOMPILED=OFF, compile without it. What is missing shows only there.
option(SARDONYX_PRECOMPILED "compile the standard library's headers once" ON)

# ccache's manual: what it must be told to cache files that use a precompiled header, and GCC's option that lets it see their contents.
if(CCACHE AND SARDONYX_PRECOMPILED AND NOT SARDONYX_SANITIZE)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

# sardonyx_precompiled_kind(KIND [OPTIONS option...] [DEPS target...] HEADERS header...)
function(sardonyx_precompiled_kind kind)
  cmake_parse_arguments(P "" "" "OPTIONS;DEPS;HEADERS" ${ARGN})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/precompiled_${kind}.cpp CONTENT "")
  add_library(precompiled_${kind} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/generated/precompiled_${kind}.cpp)
  target_compile_options(precompiled_${kind} PRIVATE ${P_OPTIONS} -fpch-preprocess)
  target_link_libraries(precompiled_${kind} PRIVATE ${P_DEPS})
  target_precompile_headers(precompiled_${kind} PRIVATE ${P_HEADERS})
endfunction()

function(sardonyx_precompiled target kind)
  if(TARGET precompiled_${kind})
    target_compile_options(${target} PRIVATE -fpch-preprocess)
    target_precompile_headers(${target} REUSE_FROM precompiled_${kind})
  endif()
endfunction()

if(SARDONYX_PRECOMPILED AND NOT SARDONYX_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(standard <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <cstdint> <cstdio> <cstdlib> <cstring> <fstream>
      <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <thread>
      <unordered_map> <unordered_set> <utility> <variant> <vector> <fmt/format.h>)
  find_package(fmt REQUIRED)
  find_package(GTest)
  sardonyx_precompiled_kind(fast DEPS fmt::fmt HEADERS ${standard})
  sardonyx_precompiled_kind(small DEPS fmt::fmt OPTIONS $<$<CONFIG:Release>:-Os> HEADERS ${standard})
  if(SARDONYX_TESTS AND GTest_FOUND)
    # Programs have -fPIE, which CMake gives to executables only.
    sardonyx_precompiled_kind(test DEPS fmt::fmt GTest::gtest GTest::gmock OPTIONS -O0 -fPIE HEADERS ${standard} <gmock/gmock.h> <gtest/gtest.h>)
    set_target_properties(precompiled_test PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  endif()
endif()
