// Program files: a compiled program with its weights in one file, which is mapped when it is loaded. The file may hold
// programs for several chips, which share the weights.
//
//   for each program, at a multiple of 64 bytes:
//     header      128 bytes: magic, format, who wrote it, sizes, where the next program is, checksum (program_file.cpp)
//     target      text: what the machine code is for
//     structure   serialize()'s bytes
//     table       offset, size and checksum of each constant
//   constants     each at a multiple of 64 bytes; equal ones are there once
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

/// Maps a file. Its constants stay in it: it must not be truncated or written to while the program lives (save_program
/// replaces files, which is fine). `threads` check the constants. `gpu`: the target of a card ("gfx942"), whose program
/// is taken; empty: that of the host, or the first if there is none. Throws Error, with the path in the message: kIo
/// for an unreadable file, kInvalidModel for a damaged one or none of ours, kUnsupported for one of another format or
/// version of Sardonyx, or without a program for `gpu`, or for a CPU that has what this one has not.
std::shared_ptr<Program> load_program(const std::filesystem::path& path, int threads = 1, std::string_view gpu = {});

/// The same from memory, which `owner` keeps alive. `bytes` must start at a multiple of 64.
std::shared_ptr<Program> parse_program(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                       int threads = 1, std::string_view gpu = {});

/// What a file's programs are for, in its order. Throws as load_program() does.
std::vector<std::string> program_targets(const std::filesystem::path& path);

/// Whether code for the GPU `target` runs on a card of target `card`: on its own kind, and PTX on NVIDIA's later ones.
bool runs_on(std::string_view target, std::string_view card);

/// Which program files this library reads: its version, and the number of their format.
std::string program_format();

/// Whether a file begins like one that save_program() wrote; false for one that can't be read.
bool is_program_file(const std::filesystem::path& path);

/// Why code for the host `target` can't run on the host `here` (see Target::arch), or "".
std::string why_not_on(const std::string& target, const std::string& here);

}  // namespace sardonyx
