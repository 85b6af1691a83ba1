// The execution provider of one session.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ep/compiled_group.h"
#include "ep/compute.h"
#include "ep/ort.h"
#include "ep/partition.h"
#include "ep/provider_device.h"
#include "ep/trace.h"
#include "options/provider_options.h"

namespace sardonyx::ep {

class Provider : public LaterEp {
 public:
  Provider(const Ort& ort, Log log, ProviderOptions options, std::shared_ptr<ProviderDevice> device);

 private:
  void capability(const OrtGraph* graph, OrtEpGraphSupportInfo* support);
  bool looks_nested(const OrtGraph* graph);
  bool left_to_parent(const OrtGraph* graph, GraphReader& reader);
  void lower_on_trial(Partition& partition, GraphReader& reader, std::vector<Group>& groups);
  void report(const Partition& partition, const std::vector<Group>& groups, std::size_t claimed);
  void report(const QuantizationReport& q);
  bool claim_contexts(const OrtGraph* graph, OrtEpGraphSupportInfo* support);
  void compile(const OrtGraph* graph, const OrtNode* fused, OrtNodeComputeInfo** compute, OrtNode** context);
  std::vector<std::string> targets() const;
  std::vector<std::shared_ptr<const Program>> programs_of(const CompiledGroup& group, const GroupModel& model);
  std::shared_ptr<CompiledGroup> build(GroupModel model);
  OrtAllocator* allocator(const OrtMemoryInfo* info);

  const Ort& ort_;
  Log log_;
  ProviderOptions options_;
  std::shared_ptr<const CustomOperators> custom_;
  std::shared_ptr<ProviderDevice> device_;
  std::shared_ptr<Trace> trace_;
  /// Groups that capability() compiled, by their nodes; consumed by compile().
  std::map<std::string, std::shared_ptr<CompiledGroup>> ready_;
  std::map<std::string, bool> lowered_;          ///< groups that were lowered on trial, by their key
  std::map<std::string, std::string> unusable_;  ///< groups whose file can't be used or written, with the reason
  std::size_t groups_built_ = 0;
  bool reported_ = false;
  std::string compatibility_;  ///< result of GetCompiledModelCompatibilityInfo
};

}  // namespace sardonyx::ep
