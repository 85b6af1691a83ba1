# The C++ classes of the ONNX format, from the onnx package's own definition (SARDONYX_ONNX_PROTO, see python.cmake).
find_package(Protobuf REQUIRED)

# sardonyx_onnx_proto(TARGET): generates onnx_pb/onnx_model.pb.h and compiles its classes into TARGET. They live in a
# namespace of ours, because ONNX Runtime and the onnx package carry their own `onnx` in the same process.
function(sardonyx_onnx_proto target)
  set(folder ${CMAKE_BINARY_DIR}/generated/onnx_pb)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${SARDONYX_ONNX_PROTO})
  file(READ ${SARDONYX_ONNX_PROTO} text)
  string(REPLACE "package onnx;" "package sardonyx.onnx.pb;" text "${text}")
  file(CONFIGURE OUTPUT ${folder}/onnx_model.proto CONTENT "${text}" @ONLY)
  add_custom_command(OUTPUT ${folder}/onnx_model.pb.cc ${folder}/onnx_model.pb.h
    COMMAND protobuf::protoc --cpp_out=${folder} -I${folder} ${folder}/onnx_model.proto
    DEPENDS ${folder}/onnx_model.proto VERBATIM)
  set_source_files_properties(${folder}/onnx_model.pb.cc PROPERTIES COMPILE_OPTIONS "-w;-fvisibility=hidden")
  target_sources(${target} PRIVATE ${folder}/onnx_model.pb.cc ${folder}/onnx_model.pb.h)
  target_include_directories(${target} PUBLIC ${CMAKE_BINARY_DIR}/generated)
  target_link_libraries(${target} PUBLIC protobuf::libprotobuf-lite)
endfunction()
