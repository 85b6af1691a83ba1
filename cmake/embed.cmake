# Writes OUT, a header with the text of each of FILES (a list) in a table called NAME. Raw strings are cut in pieces,
# because compilers bound a single literal's length.
set(text "// Generated from kernel sources by cmake/embed.cmake.\n#pragma once\n#include \"support/embedded_file.h\"\nnamespace sardonyx {\ninline constexpr EmbeddedFile ${NAME}[] = {\n")
foreach(file ${FILES})
  get_filename_component(base ${file} NAME)
  file(READ ${file} body HEX)
  string(LENGTH "${body}" hexlen)
  math(EXPR size "${hexlen} / 2")
  # 32 bytes a line: CMake's expressions have neither counts nor more than nine groups, hence the dots.
  string(REGEX REPLACE "(................................................................)" "\\1\n" body "${body}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" body "${body}")
  string(REPLACE "\n" "\"\n\"" body "${body}")
  string(APPEND text "  {\"${base}\", \"${body}\", ${size}},\n")
endforeach()
string(APPEND text "};\n}  // namespace sardonyx\n")
file(WRITE ${OUT}.tmp "${text}")
file(COPY_FILE ${OUT}.tmp ${OUT} ONLY_IF_DIFFERENT)
file(TOUCH ${OUT})
