# Helpers that keep each folder's CMakeLists.txt to a few lines.

# sardonyx_sanitize(TARGET): with SARDONYX_SANITIZE, the target's code is instrumented.
function(sardonyx_sanitize target)
  if(SARDONYX_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${SARDONYX_SANITIZE} -fno-omit-frame-pointer -g1 -Wno-tsan)
  endif()
endfunction()
# The rooms that run models, whose objects several threads use. The others turn one model into another in one thread; what
# they read from outside has fuzz targets under sanitizers.
set(sardonyx_sanitized support compile device collective host routines program runtime api)

# sardonyx_room(NAME [DEPS target...]): every .cpp of this folder (not of its subfolders) becomes part of libsardonyx.
# Headers are included from src/ as "folder/file.h".
function(sardonyx_room name)
  cmake_parse_arguments(ROOM "" "" "DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_library(room_${name} OBJECT ${sources})
  target_include_directories(room_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(room_${name} PUBLIC ${ROOM_DEPS})
  if(name IN_LIST sardonyx_sanitized)
    sardonyx_sanitize(room_${name})
  endif()
  set_property(GLOBAL APPEND PROPERTY SARDONYX_ROOMS room_${name})
endfunction()

# sardonyx_test(NAME [DEPS target...]): every .cpp of this folder becomes one GoogleTest program build/bin/test_NAME.
function(sardonyx_test name)
  cmake_parse_arguments(T "" "" "DEPS;LABELS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_executable(test_${name} ${sources})
  target_include_directories(test_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(test_${name} PRIVATE ${T_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND test_${name})
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
