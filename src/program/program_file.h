// Program files: a compiled program with its weights in one file, which is mapped when it is loaded. The file may hold
// programs for several chips, which share the weights.
//
//   for each program, at a multiple of 64 bytes:
//     header      128 bytes: magic, format, writer, sizes, offset of the next program, checksum (program_file.cpp)
//     target      text: the target of the machine code
//     structure   serialize()'s bytes
//     table       offset, size and checksum of each constant
//   constants     each at a multiple of 64 bytes; equal ones are stored once
//
// Numbers are little-endian. Checksums are BLAKE3: the header's covers its program. They find
// damage; they don't make a file from a stranger safe, because it holds machine code.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace sardonyx {

/// Writes a file under a temporary name in the same folder, then renames it. Throws Error(kIo), or kUnsupported for
/// programs that can't be saved; kInvalidArgument for two of one target.
void save_program(const Program& program, const std::filesystem::path& path);
void save_programs(const std::vector<std::shared_ptr<const Program>>& programs, const std::filesystem::path& path);

/// Maps a file. Its constants stay in the mapping: the file must not be truncated or written to while the program lives
/// (save_program replaces files, which is allowed). `threads` verify checksums. `gpu`: the target of a card ("gfx942"),
/// for which a program is chosen; empty: the program for the host, or the first one if there is none. Throws Error,
/// with the path in the message: kIo for an unreadable file; kInvalidModel for one that is damaged or not a program
/// file; kUnsupported for another format or version of Sardonyx, if there is no program for `gpu`, or if its CPU
/// features are missing here.
std::shared_ptr<Program> load_program(const std::filesystem::path& path, int threads = 1, std::string_view gpu = {});

/// The same from memory that `owner` keeps alive. `bytes` must be aligned to 64.
std::shared_ptr<Program> parse_program(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                       int threads = 1, std::string_view gpu = {});

/// The targets of a file's programs, in order. Throws as load_program() does.
std::vector<std::string> program_targets(const std::filesystem::path& path);

/// Whether code for the GPU `target` runs on a card of target `card`: the same target, or PTX on a later NVIDIA card.
bool runs_on(std::string_view target, std::string_view card);

/// Identifies the program files that this library reads: its version, and the number of the format.
std::string program_format();

/// Whether a file begins like one written by save_program(); false if it can't be read.
bool is_program_file(const std::filesystem::path& path);

/// Why code for the host `target` can't run on the host `here` (see Target::arch), or "" if it can.
std::string why_not_on(const std::string& target, const std::string& here);

}  // namespace sardonyx
