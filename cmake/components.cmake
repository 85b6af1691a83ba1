# Helpers that keep each directory's CMakeLists.txt to a few lines.

# sardonyx_sanitize(TARGET): with SARDONYX_SANITIZE, the target's code is instrumented.
function(sardonyx_sanitize target)
  if(SARDONYX_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${SARDONYX_SANITIZE} -fno-omit-frame-pointer -g1 -Wno-tsan)
  endif()
endfunction()
# src/components.txt says which components there are and which of them each may use: component_NAME_uses for each NAME below.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/components.txt)
file(STRINGS ${PROJECT_SOURCE_DIR}/src/components.txt component_lines REGEX "^[a-z]")
foreach(line ${component_lines})
  string(REGEX MATCH "^([a-z_]+):(.*)$" matched "${line}")
  if(NOT matched)
    message(FATAL_ERROR "src/components.txt: '${line}' is not NAME: NAME...")
  endif()
  set(name ${CMAKE_MATCH_1})
  separate_arguments(uses UNIX_COMMAND "${CMAKE_MATCH_2}")
  foreach(use ${uses})
    if(NOT DEFINED component_${use}_uses)
      message(FATAL_ERROR "src/components.txt: ${name} uses ${use}, which is no component above it")
    endif()
  endforeach()
  set(component_${name}_uses "${uses}")
endforeach()

# Components that run models: several threads use their objects. The other components turn one model into another in one thread;
# their parsers have fuzz targets under sanitizers.
set(sardonyx_sanitized support compile device collective host routines program runtime api)

# sardonyx_component(NAME [SMALL] [NOT_IN_LIBRARY] [DEPS target...]): every .cpp of this directory (not of its subdirectories) becomes part
# of libsardonyx, or with NOT_IN_LIBRARY of the programs that link component_NAME. SMALL is for code that runs once per node or kernel of a model:
# optimised for size, it takes half the space. Its dependencies are those of src/components.txt, and the external libraries in DEPS.
# Headers are included from src/ as "directory/file.h". tests/fuzz sets SARDONYX_COMPONENT_TYPE to STATIC, so that its programs link only
# the files of a component that they need.
function(sardonyx_component name)
  cmake_parse_arguments(COMPONENT "SMALL;NOT_IN_LIBRARY" "" "DEPS" ${ARGN})
  if(NOT DEFINED component_${name}_uses)
    message(FATAL_ERROR "src/${name} is not in src/components.txt: add a line '${name}: ' with the components that it includes")
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  set(type OBJECT)
  if(SARDONYX_COMPONENT_TYPE)
    set(type ${SARDONYX_COMPONENT_TYPE})
  endif()
  add_library(component_${name} ${type} ${sources})
  target_include_directories(component_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/generated)
  list(TRANSFORM component_${name}_uses PREPEND component_ OUTPUT_VARIABLE uses)
  target_link_libraries(component_${name} PUBLIC ${uses} ${COMPONENT_DEPS})
  if(COMPONENT_SMALL)
    target_compile_options(component_${name} PRIVATE $<$<CONFIG:Release>:-Os>)
    sardonyx_precompiled(component_${name} small)
  else()
    sardonyx_precompiled(component_${name} fast)
  endif()
  if(name IN_LIST sardonyx_sanitized)
    sardonyx_sanitize(component_${name})
  endif()
  if(NOT COMPONENT_NOT_IN_LIBRARY)
    set_property(GLOBAL APPEND PROPERTY SARDONYX_COMPONENTS component_${name})
  endif()
endfunction()

# sardonyx_test(NAME [OPTIMIZED] [DEPS target...] [LABELS slow]): every .cpp of this directory becomes one GoogleTest program
# build/bin/test_NAME. Tests are compiled without optimisation, in two thirds of the time: what they test is optimised. OPTIMIZED is
# for those that compute much themselves, or test headers of kernels.
function(sardonyx_test name)
  cmake_parse_arguments(T "OPTIMIZED" "" "DEPS;LABELS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if("sardonyx" IN_LIST T_DEPS)  # the graph is verified after every pass
    list(APPEND sources ${PROJECT_SOURCE_DIR}/tests/cpp/verify_passes.cpp)
  endif()
  add_executable(test_${name} ${sources})
  target_include_directories(test_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  if(NOT T_OPTIMIZED)
    target_compile_options(test_${name} PRIVATE -O0)
    sardonyx_precompiled(test_${name} test)
  endif()
  target_link_libraries(test_${name} PRIVATE ${T_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND test_${name})
  if(T_OPTIMIZED)
    set_tests_properties(${name} PROPERTIES COST 10)  # those that compute much start first, so that no core idles at the end
  endif()
  if(T_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}")
  endif()
endfunction()

# sardonyx_embed(TARGET OUT.h NAME FILE...): generates a header with each file's text as a constexpr string table
# `inline constexpr EmbeddedFile NAME[]` (path, text), so that kernels' sources travel inside the library.
function(sardonyx_embed target header name)
  set(out ${PROJECT_BINARY_DIR}/generated/${header})
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DNAME=${name} "-DFILES=${ARGN}" -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${ARGN} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
  add_custom_target(${target} DEPENDS ${out})
endfunction()
