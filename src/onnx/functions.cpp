// Model-local functions: each call is replaced by the function's nodes, as FunctionProto's comments in onnx-ml.proto
// define.
#include <algorithm>

#include "onnx/reader.h"
#include "onnx/text.h"
#include "support/error.h"

namespace sardonyx::onnx {

void ModelReader::read_functions() {
  for (pb::FunctionProto& f : *proto_.mutable_functions()) {
    const std::string what = "function " + quote(f.name());
    checked(f.name(), "a function's name");
    if (f.name().empty()) fail(ErrorKind::kInvalidModel, "a model-local function has no name");
    if (!functions_
             .emplace(FunctionKey(normal_domain(f.domain()), f.name(), checked(f.overload(), "a function's overload")),
                      &f)
             .second)
      fail(ErrorKind::kInvalidModel, "{} of domain {} is defined twice", what, quote(f.domain()));
  }
}

pb::FunctionProto* ModelReader::find_function(const pb::NodeProto& node) {
  if (functions_.empty()) return nullptr;
  const auto found = functions_.find(FunctionKey(normal_domain(node.domain()), node.op_type(), node.overload()));
  return found == functions_.end() ? nullptr : found->second;
}

Frame ModelReader::enter(pb::FunctionProto& function, const Node& call, const Frame& caller, int depth) {
  const std::string what = call.describe();
  for (const Frame* f = &caller; f != nullptr; f = f->caller)
    if (f->function == &function)
      fail(ErrorKind::kInvalidModel, "{} makes function {} call itself", what, quote(function.name()));
  const int items =
      function.input_size() + function.output_size() + function.opset_import_size() + function.attribute_proto_size();
  charge(1024 + 64 * static_cast<std::uint64_t>(items), what);
  Frame frame;
  frame.caller = &caller;
  frame.function = &function;
  frame.depth = caller.depth + 1;
  if (frame.depth > kMaxFunctionDepth)
    fail(ErrorKind::kUnsupported, "{}: functions call functions more than {} deep", what, kMaxFunctionDepth);
  // Nodes without a name are distinguished by the numbers that unique() appends.
  frame.prefix = (call.name.empty() ? caller.prefix + call.op_type : call.name) + "/";
  frame.opsets = read_opsets(function.opset_import(), "function " + quote(function.name()));
  frame.arguments = call.attributes;
  const Scope nothing;
  for (pb::AttributeProto& a : *function.mutable_attribute_proto()) {
    if (frame.arguments.contains(a.name())) continue;
    Attribute value;
    if (read_attribute(a, frame, nothing, depth, "function " + quote(function.name()), value))
      frame.arguments.emplace(checked(a.name(), "an attribute's name"), std::move(value));
  }
  return frame;
}

void ModelReader::inline_call(pb::FunctionProto& function, const Node& call, const Frame& caller, int depth,
                              std::vector<Node>& out) {
  const std::string what = call.describe();
  const Frame frame = enter(function, call, caller, depth);
  const auto count = [](const auto& v) { return static_cast<std::size_t>(v.size()); };
  if (call.inputs.size() > count(function.input()) || call.outputs.size() > count(function.output()))
    fail(ErrorKind::kInvalidModel, "{} has {} inputs and {} outputs, but function {} has {} and {}", what,
         call.inputs.size(), call.outputs.size(), quote(function.name()), function.input_size(),
         function.output_size());
  Scope scope;
  for (std::size_t i = 0; i < count(function.input()); ++i) {
    const std::string& formal = checked(function.input(static_cast<int>(i)), "a function's input");
    if (!scope.names.emplace(formal, i < call.inputs.size() ? call.inputs[i] : "").second)
      fail(ErrorKind::kInvalidModel, "function {} has the input {} twice", quote(function.name()), quote(formal));
  }
  std::unordered_set<std::string_view> produced;
  for (const pb::NodeProto& n : function.node())
    for (const std::string& name : n.output())
      if (!name.empty()) {
        if (scope.names.contains(name) || !produced.insert(name).second)
          fail(ErrorKind::kInvalidModel, "value {} is defined twice in function {}", quote(name),
               quote(function.name()));
      }
  // A result of a node that is an output takes the caller's name. Outputs for which that is impossible (an input passed
  // through, one value as two outputs) need an Identity.
  std::vector<std::size_t> copies;
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    const std::string& formal = checked(function.output(static_cast<int>(i)), "a function's output");
    if (call.outputs[i].empty()) continue;
    if (!produced.contains(formal) && !scope.names.contains(formal))
      fail(ErrorKind::kInvalidModel, "function {} does not define its output {}", quote(function.name()),
           quote(formal));
    if (!scope.names.emplace(formal, call.outputs[i]).second) copies.push_back(i);
  }
  for (const pb::NodeProto& n : function.node())
    for (const std::string& name : n.output())
      if (!name.empty() && !scope.names.contains(name))
        declare(scope, frame, name, "value " + quote(name) + " of " + what);

  for (int i = 0; i < function.node_size(); ++i) read_node(*function.mutable_node(i), i, frame, scope, depth, out);
  for (const std::size_t i : copies) {
    Node node;
    node.name = frame.prefix + "output" + std::to_string(i);
    node.op_type = "Identity";
    node.opset = opset_of(frame, "", what);
    node.index = function.node_size() + static_cast<std::int64_t>(i);
    node.inputs = {scope.names.at(function.output(static_cast<int>(i)))};
    node.outputs = {call.outputs[i]};
    if (node.inputs[0].empty())
      fail(ErrorKind::kInvalidModel, "{}: output {} of function {} is an input that the call leaves out", what, i,
           quote(function.name()));
    out.push_back(std::move(node));
  }
}

}  // namespace sardonyx::onnx
