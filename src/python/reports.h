// What Python's model tells of its compiled code: lists and dicts made of the library's reports.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "api/model.h"

namespace sardonyx::python {

/// The launches of a run: kind, kernel, nodes.
nanobind::list kernels(const Model& m);
/// The nodes of the model's file: name, operator, inputs, outputs.
nanobind::list nodes(const Model& m);
/// Reports the kernels of a model file or of bytes, compiled for a GPU that need not be present.
nanobind::list code_of(const std::string& path, const nanobind::bytes& data, const std::string& target,
                       const nanobind::dict& options);
/// Estimates the launches of a model file, or of bytes (`path` is then the folder of external data), on a GPU that need
/// not be present.
nanobind::list estimate_of(const std::string& path, const nanobind::bytes& data, const std::string& target,
                           const nanobind::dict& options, const std::map<std::string, std::int64_t>& dims);
/// The graph after each pass, and remarks, of a model file or of bytes.
nanobind::tuple passes_of(const std::string& path, const nanobind::bytes& data, const std::string& target,
                          const nanobind::dict& options);
/// Bytes of a run by use: weights, inputs, outputs, arena and others; `dims` has the sizes of symbols.
std::map<std::string, std::size_t> memory(const Model& m, const std::map<std::string, std::int64_t>& dims);
/// Launches of the main block: kind, name, nodes, bytes read, bytes written, operations.
nanobind::list traffic(const Model& m, const std::map<std::string, std::vector<std::int64_t>>& dims);

}  // namespace sardonyx::python
