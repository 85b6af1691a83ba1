# `cmake --install build --prefix DIR`: the command line, the library, its headers and a package for find_package(sardonyx).
# `pip install .` installs the component `python` alone; src/python/CMakeLists.txt says what is in it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(SKBUILD)
  return()
endif()
# oneDNN's library stays out of the way of other copies.
install(TARGETS sardonyx sardonyx_compiler LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
set_target_properties(sardonyx PROPERTIES INSTALL_RPATH "$ORIGIN/sardonyx")
set_target_properties(sardonyx_compiler PROPERTIES INSTALL_RPATH "$ORIGIN")
install(FILES ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libdnnl.so.3 DESTINATION ${CMAKE_INSTALL_LIBDIR}/sardonyx COMPONENT library)
if(SARDONYX_EP)
  install(TARGETS amdgpu-ep sardonyx_onnxruntime LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
  set_target_properties(amdgpu-ep PROPERTIES INSTALL_RPATH "$ORIGIN")
endif()
if(SARDONYX_MIGRAPHX)  # out of the way of AMD's library of the same name
  install(TARGETS migraphx_c LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/sardonyx/migraphx COMPONENT library)
  set_target_properties(migraphx_c PROPERTIES INSTALL_RPATH "$ORIGIN/../..")
endif()
install(DIRECTORY include/sardonyx DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/sardonyx)
configure_package_config_file(cmake/sardonyx-config.cmake.in ${PROJECT_BINARY_DIR}/sardonyx-config.cmake
  INSTALL_DESTINATION ${package} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/sardonyx-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/sardonyx-config.cmake ${PROJECT_BINARY_DIR}/sardonyx-config-version.cmake
  DESTINATION ${package} COMPONENT library)

install(TARGETS sardonyx_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
set_target_properties(sardonyx_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
