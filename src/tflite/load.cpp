#include "tflite/load.h"

#include <cstring>
#include <memory>

#include "model/bytes.h"
#include "support/error.h"
#include "support/mapped_file.h"
#include "support/text.h"
#include "tflite/operator.h"
#include "tflite/reader.h"

namespace sardonyx::tflite {
namespace {

/// The signature's name of a tensor, or the tensor's.
std::string interface_name(const std::vector<NamedTensor>& named, const SubgraphInfo& graph, std::int32_t tensor) {
  for (const NamedTensor& n : named)
    if (n.tensor == tensor && !n.name.empty()) return n.name;
  return graph.tensors[static_cast<std::size_t>(tensor)].name;
}

void add_inputs(const Reader& file, Converter& main, model::Graph& graph) {
  const SubgraphInfo& info = main.info();
  for (const std::int32_t k : info.inputs) {
    const TensorInfo& t = main.tensor(k);
    if (!t.unsupported.empty()) fail(ErrorKind::kUnsupported, "input {}: {}", quote(t.name), t.unsupported);
    model::ValueInfo v;
    v.name = main.nodes().names().unique(interface_name(file.named_inputs(), info, k));
    v.dtype = t.dtype;
    v.shape.emplace();
    for (const std::int64_t d : t.shape) v.shape->push_back(d >= 0 ? model::Dim{d, ""} : model::Dim{});
    main.bind(k, v.name);
    graph.inputs.push_back(std::move(v));
  }
}

/// The outputs' names, which no intermediate value may have.
std::vector<std::string> output_names(const Reader& file, Converter& main) {
  const SubgraphInfo& info = main.info();
  if (info.outputs.empty()) fail(ErrorKind::kInvalidModel, "the model has no output");
  std::vector<std::string> out;
  for (const std::int32_t k : info.outputs)
    out.push_back(main.nodes().names().unique(interface_name(file.named_outputs(), info, k)));
  return out;
}

void add_outputs(const std::vector<std::string>& wanted, Converter& main, model::Graph& graph) {
  const SubgraphInfo& info = main.info();
  const std::vector<std::string> values = main.outputs();
  main.nodes().begin("output", 0);
  for (std::size_t k = 0; k < values.size(); ++k) {
    main.nodes().add("Identity", {values[k]});
    model::ValueInfo v;
    v.name = main.nodes().last().outputs[0] = wanted[k];
    v.dtype = main.tensor(info.outputs[k]).dtype;
    graph.outputs.push_back(std::move(v));
  }
}

model::Model read(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  Reader file(bytes, std::move(owner));
  model::Model out;
  out.ir_version = 10;
  out.producer_name = "TFLite";
  out.opsets[""] = kOpset;
  if (const std::string text = file.description(); !text.empty()) out.metadata["description"] = text;
  out.graph.name = file.subgraphs()[0].name;
  Names names;
  Converter main(file, 0, out.graph, names, 0);
  add_inputs(file, main, out.graph);
  const std::vector<std::string> wanted = output_names(file, main);
  main.run();
  add_outputs(wanted, main, out.graph);
  return out;
}

}  // namespace

bool is_tflite(std::span<const std::byte> bytes) {
  return bytes.size() >= 8 && std::memcmp(bytes.data() + 4, "TFL3", 4) == 0;
}

model::Model load(const std::filesystem::path& path) {
  try {
    auto file = std::make_shared<const MappedFile>(path);
    const std::span<const std::byte> bytes{file->data(), file->size()};
    return read(bytes, std::move(file));
  } catch (const Error& e) {
    throw Error(e.kind(), path.string() + ": " + e.what());
  }
}

model::Model parse(std::span<const std::byte> bytes) {
  std::byte* copy = nullptr;
  const model::Bytes block = model::aligned_zeros(bytes.size(), copy);
  if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
  return read({block.data, block.size}, block.owner);
}

}  // namespace sardonyx::tflite
