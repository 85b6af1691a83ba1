// The constants of a program on a device with memory of its own. They are uploaded, or computed from each other, with a
// peak of little more memory than they finally need.
//
// Constants that main does not use are on the device only while others are computed from them. Steps that share no such
// temporary tensor form independent groups, which are reordered: those that need the most workspace run first, while
// few final constants are loaded. If the peak would still exceed the final size, for example because one tensor is most
// of the model, the workspace is pinned host memory.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "program/visit.h"
#include "runtime/memory_plan.h"
#include "runtime/run.h"
#include "runtime/weights.h"
#include "support/mapped_file.h"

namespace sardonyx {
namespace {

constexpr std::size_t kAlignment = 256;  // bytes, as Gpu::allocate

constexpr std::size_t kSlack = 256;  // loading may exceed the final size by this part: 1 / 256

std::size_t rounded(std::size_t n, std::size_t alignment) {
  return (std::max<std::size_t>(n, 1) + alignment - 1) / alignment * alignment;
}

// Buffers that a step reads or writes, including those of nested blocks.
void add_used(const ProgramStep& s, std::vector<int>& used) {
  used.insert(used.end(), s.reads.begin(), s.reads.end());
  used.insert(used.end(), s.writes.begin(), s.writes.end());
  for (const Block* b : blocks_of(s)) {
    for (const ProgramStep& inside : b->steps) add_used(inside, used);
    for (const TensorRef& o : b->outputs) used.push_back(o.buffer);
  }
}

// Control flow, and steps that read or check sizes, are not reordered.
bool keeps_place(const ProgramStep& s) {
  return is_control(s) || std::holds_alternative<BindStep>(s.op) || std::holds_alternative<CheckStep>(s.op);
}

/// Steps of init that depend on each other, and offsets of their temporaries.
struct Group {
  std::vector<std::size_t> steps;
  std::vector<Lifetime> lives;  ///< of temporaries; first and last are indices into `steps`
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
};

class Groups {
 public:
  Groups(const Program& p, const std::vector<bool>& lasting) : p_(p), lasting_(lasting), parent_(p.init.steps.size()) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    join();
    std::vector<int> number(parent_.size(), -1);
    for (std::size_t k = 0; k < parent_.size(); ++k) {
      int& n = number[root(k)];
      if (n < 0) {
        n = static_cast<int>(list_.size());
        list_.emplace_back();
      }
      list_[static_cast<std::size_t>(n)].steps.push_back(k);
    }
    for (Group& g : list_) plan(g);
    std::stable_sort(list_.begin(), list_.end(), [](const Group& a, const Group& b) { return a.bytes > b.bytes; });
  }
  const std::vector<Group>& list() const { return list_; }

 private:
  const BufferInfo& info(int b) const { return p_.buffers[static_cast<std::size_t>(b)]; }
  std::size_t root(std::size_t k) {
    while (parent_[k] != k) k = parent_[k] = parent_[parent_[k]];
    return k;
  }

  void join() {
    // Steps that read values (symbols, checks, control flow) keep their order.
    const bool in_order = std::any_of(p_.init.steps.begin(), p_.init.steps.end(), keeps_place);
    std::vector<std::size_t> user(p_.buffers.size(), SIZE_MAX);
    for (std::size_t k = 0; k < p_.init.steps.size(); ++k) {
      if (in_order) parent_[root(k)] = root(0);
      std::vector<int> used;
      add_used(p_.init.steps[k], used);
      for (const int b : used) {
        // Small weights, and those that stay loaded, may be used by several groups.
        if (info(b).kind == BufferInfo::Kind::kConstant &&
            (lasting_[static_cast<std::size_t>(b)] || data(b).size < kLargeConstant))
          continue;
        std::size_t& first = user[static_cast<std::size_t>(b)];
        if (first == SIZE_MAX)
          first = k;
        else
          parent_[root(k)] = root(first);
      }
    }
  }

  const Data& data(int b) const { return p_.constants[static_cast<std::size_t>(info(b).constant)]; }

  void plan(Group& g) {
    std::unordered_map<int, std::size_t> at;
    std::vector<bool> own(p_.buffers.size());  // written by these steps, not by a nested block
    for (const std::size_t k : g.steps)
      for (const int w : p_.init.steps[k].writes) own[static_cast<std::size_t>(w)] = true;
    const SymbolValues none;
    for (std::size_t n = 0; n < g.steps.size(); ++n) {
      std::vector<int> used;
      add_used(p_.init.steps[g.steps[n]], used);
      for (const int b : used) {
        const bool weight = info(b).kind == BufferInfo::Kind::kConstant;
        if (lasting_[static_cast<std::size_t>(b)] || !(weight || own[static_cast<std::size_t>(b)])) continue;
        if (!std::all_of(info(b).shape.begin(), info(b).shape.end(), [&](const Expr& d) { return evaluable(d, none); }))
          continue;
        const auto [it, is_new] = at.emplace(b, g.lives.size());
        if (is_new)
          g.lives.push_back(
              {b, weight ? data(b).size : buffer_bytes(info(b), none), static_cast<int>(n), static_cast<int>(n)});
        g.lives[it->second].last = static_cast<int>(n);
      }
    }
    g.bytes = plan_memory(g.lives, g.offsets, kAlignment);
  }

  const Program& p_;
  const std::vector<bool>& lasting_;
  std::vector<std::size_t> parent_;
  std::vector<Group> list_;
};

}  // namespace

/// Loads and computes the constants that main uses ("lasting").
class Executor::ConstantLoader {
 public:
  ConstantLoader(Executor& e, std::vector<bool> lasting, Context& context)
      : e_(e), p_(*e.program_), lasting_(std::move(lasting)), run_(e, context, options_, e.threads_) {
    constants_.addresses.assign(p_.buffers.size(), nullptr);
    constants_.owners.assign(p_.buffers.size(), nullptr);
    place_small();
  }

  std::shared_ptr<const DeviceConstants> load() {
    const Groups groups(p_, lasting_);
    e_.backend_->make_kernels(p_.init, run_);
    for (const Group& g : groups.list()) {
      make_workspace(g);
      compute(g);
    }
    run_.queue.synchronize();
    workspace_.reset();
    run_.queue.trim();
    for (std::size_t k = 0; k < p_.buffers.size(); ++k)
      if (lasting_[k] && p_.buffers[k].kind == BufferInfo::Kind::kConstant) upload(static_cast<int>(k));
    run_.queue.synchronize();
    for (const auto& u : fresh_) share_upload(e_.backend_->device(), u);
    for (const auto& c : computed_) share_computed(e_.backend_->device(), c);
    for (std::size_t k = 0; k < p_.buffers.size(); ++k)
      if (lasting_[k]) constants_.addresses[k] = run_.address[k];
    constants_.program = e_.program_;
    return std::make_shared<DeviceConstants>(std::move(constants_));
  }

 private:
  const BufferInfo& info(int b) const { return p_.buffers[static_cast<std::size_t>(b)]; }
  const Data& data(int b) const { return p_.constants[static_cast<std::size_t>(info(b).constant)]; }
  bool is_weight(int b) const { return info(b).kind == BufferInfo::Kind::kConstant; }

  bool known(int b) const {
    return std::all_of(info(b).shape.begin(), info(b).shape.end(),
                       [](const Expr& d) { return evaluable(d, SymbolValues()); });
  }

  // Places lasting constants: small ones share a block; for the others their sizes are added up.
  void place_small() {
    std::size_t total = 0;
    std::vector<std::pair<std::size_t, std::size_t>> small;  // buffer, offset
    for (const bool tiny : {false, true}) {                  // scalars are many, so they are packed together at the end
      for (std::size_t k = 0; k < p_.buffers.size(); ++k) {
        const int b = static_cast<int>(k);
        if (!lasting_[k] || !(is_weight(b) || known(b))) continue;
        const std::size_t n = is_weight(b) ? data(b).size : run_.bytes(b), alignment = n <= 16 ? 16 : kAlignment;
        if ((n <= 16) != tiny) continue;
        if (n >= kLargeConstant) {
          final_bytes_ += n;
          continue;
        }
        small.emplace_back(k, total);
        total += rounded(n, alignment);
      }
    }
    if (total == 0) return;
    const std::shared_ptr<void> block = e_.backend_->allocate_lasting(total);
    resident_ = total;
    final_bytes_ += total;
    for (const auto& [k, offset] : small) {
      run_.address[k] = static_cast<char*>(block.get()) + offset;
      constants_.owners[k] = block;
    }
  }

  // Allocates a group's workspace: on the device if the total stays within the final size, otherwise in pinned host
  // memory, which kernels can access too.
  void make_workspace(const Group& g) {
    std::size_t lasting = 0;
    std::vector<int> used;
    for (const std::size_t k : g.steps) add_used(p_.init.steps[k], used);
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    for (const int b : used) {
      const auto k = static_cast<std::size_t>(b);
      if (lasting_[k] && !loaded_[k] && !run_.address[k] && (is_weight(b) || known(b)))
        lasting += is_weight(b) ? data(b).size : run_.bytes(b);
    }
    const auto fits = [&](std::size_t bytes) {
      return resident_ + lasting + bytes <= final_bytes_ + final_bytes_ / kSlack;
    };
    const bool enough = g.bytes <= workspace_bytes_;
    if (enough && (workspace_on_host_ ? !fits(g.bytes) : fits(workspace_bytes_) && g.bytes >= workspace_bytes_ / 2))
      return;
    run_.queue.synchronize();
    workspace_.reset();
    workspace_on_host_ = !fits(g.bytes);
    workspace_bytes_ = g.bytes;
    if (g.bytes > 0)
      workspace_ = workspace_on_host_ ? e_.backend_->allocate_on_host(g.bytes) : e_.backend_->allocate_lasting(g.bytes);
  }

  // Uploads a weight that main uses to its final place.
  void upload(int b) {
    const auto k = static_cast<std::size_t>(b);
    if (loaded_[k]) return;
    loaded_[k] = true;
    const Data& d = data(b);
    constants_.bytes += d.size;
    if (run_.address[k]) {
      run_.queue.upload(run_.address[k], d.bytes, d.size);
      return;
    }
    std::shared_ptr<const UploadedConstant> u = find_upload(e_.backend_->device(), d);
    if (!u) {
      u = std::make_shared<const UploadedConstant>(UploadedConstant{d, e_.backend_->allocate_lasting(d.size)});
      resident_ += d.size;
      run_.queue.upload(u->memory.get(), d.bytes, d.size);
      fresh_.push_back(u);
      forget_pages(d.bytes, d.size);
    }
    run_.address[k] = u->memory.get();
    constants_.owners[k] = std::move(u);
  }

  // Names a launch whose result is large and lasting, and which reads nothing but weights that have memory of their
  // own: programs that share these share the result. Empty: it is none.
  std::string shared_launch(const ProgramStep& s) const {
    const auto* l = std::get_if<LaunchStep>(&s.op);
    if (!l || l->repeat || s.when || s.writes.size() != 1) return {};
    const auto out = static_cast<std::size_t>(s.writes[0]);
    if (!lasting_[out] || run_.address[out] || !known(s.writes[0]) || run_.bytes(s.writes[0]) < kLargeConstant)
      return {};
    std::string name = p_.kernels[static_cast<std::size_t>(l->kernel)].spec.body;
    for (const Exprs* numbers : {&l->symbols, &l->divisors})
      for (const Expr& x : *numbers) name += fmt::format(" {}", run_.eval(x));
    for (const int b : l->buffers) {
      const auto k = static_cast<std::size_t>(b);
      if (b == s.writes[0]) {
        name += " out";
        continue;
      }
      if (!is_weight(b) || !lasting_[k] || data(b).size < kLargeConstant) return {};
      name += fmt::format(" {}", fmt::ptr(run_.address[k]));
    }
    return name;
  }

  bool take_computed(int out, const std::string& launch) {
    const std::shared_ptr<const ComputedConstant> c = find_computed(e_.backend_->device(), launch);
    if (!c) return false;
    const auto k = static_cast<std::size_t>(out);
    run_.address[k] = c->memory.get();
    constants_.owners[k] = c;
    constants_.bytes += run_.bytes(out);
    loaded_[k] = true;
    return true;
  }

  void add_computed(const ProgramStep& s, const std::string& launch, const std::shared_ptr<void>& memory) {
    ComputedConstant c{launch, {}, memory};
    for (const int b : std::get<LaunchStep>(s.op).buffers)
      if (b != s.writes[0]) c.inputs.push_back(constants_.owners[static_cast<std::size_t>(b)]);
    const auto own = std::make_shared<const ComputedConstant>(std::move(c));
    constants_.owners[static_cast<std::size_t>(s.writes[0])] = own;
    computed_.push_back(own);
  }

  void compute(const Group& g) {
    char* const workspace = static_cast<char*>(workspace_.get());
    for (std::size_t n = 0; n < g.steps.size(); ++n) {
      const ProgramStep& s = p_.init.steps[g.steps[n]];
      std::vector<int> used;
      add_used(s, used);
      for (const int b : used)
        if (is_weight(b) && lasting_[static_cast<std::size_t>(b)]) upload(b);
      for (std::size_t k = 0; k < g.lives.size(); ++k) {
        const Lifetime& life = g.lives[k];
        if (life.first != static_cast<int>(n)) continue;
        char* place = workspace + g.offsets[k];
        run_.address[static_cast<std::size_t>(life.buffer)] = place;
        if (!is_weight(life.buffer)) continue;
        const Data& d = data(life.buffer);
        if (workspace_on_host_) {
          run_.queue.synchronize();
          std::memcpy(place, d.bytes, d.size);
        } else {
          run_.queue.upload(place, d.bytes, d.size);
        }
        if (d.size >= kLargeConstant) forget_pages(d.bytes, d.size);
      }
      const std::string launch = shared_launch(s);
      if (!launch.empty() && take_computed(s.writes[0], launch)) continue;
      const bool control = is_control(s);
      for (const int w : s.writes) {
        const auto k = static_cast<std::size_t>(w);
        if (control || run_.address[k]) continue;
        run_.owned[w] = lasting_[k] ? e_.backend_->allocate_lasting(run_.bytes(w)) : run_.queue.allocate(run_.bytes(w));
        run_.address[k] = run_.owned[w].get();
      }
      std::unique_ptr<PreparedStep> prepared;
      if (!s.when || run_.eval(s.when) != 0) run_.run_step(s, prepared);
      for (const int w : s.writes) {
        const auto k = static_cast<std::size_t>(w);
        if (!lasting_[k] || loaded_[k]) continue;
        loaded_[k] = true;
        constants_.bytes += run_.bytes(w);
        if (const auto o = run_.owned.find(w); o != run_.owned.end()) {
          constants_.owners[k] = o->second;
          resident_ += run_.bytes(w);
          if (!launch.empty()) add_computed(s, launch, o->second);
        }
      }
    }
    run_.owned.clear();
  }

  Executor& e_;
  const Program& p_;
  std::vector<bool> lasting_;  ///< by buffer: main uses it
  RunOptions options_;
  Run run_;
  std::vector<bool> loaded_ = std::vector<bool>(p_.buffers.size());
  DeviceConstants constants_;
  std::size_t final_bytes_ = 0, resident_ = 0;  ///< of lasting constants: in the end, and so far
  std::shared_ptr<void> workspace_;             ///< for temporaries
  std::size_t workspace_bytes_ = 0;
  bool workspace_on_host_ = false;
  std::vector<std::shared_ptr<const UploadedConstant>> fresh_;
  std::vector<std::shared_ptr<const ComputedConstant>> computed_;
};

void Executor::load_constants(std::vector<bool> used) {
  std::vector<bool> constant(used.size());
  for (std::size_t k = 0; k < used.size(); ++k) constant[k] = program_->buffers[k].kind == BufferInfo::Kind::kConstant;
  for (const ProgramStep& s : program_->init.steps)
    for (const int w : s.writes) constant[static_cast<std::size_t>(w)] = true;
  for (std::size_t k = 0; k < used.size(); ++k) used[k] = used[k] && constant[k];
  device_constants_ = find_constants(backend_->device(), *program_);
  if (!device_constants_) {
    const std::unique_ptr<Context> context = acquire();
    device_constants_ = ConstantLoader(*this, std::move(used), *context).load();
    share_constants(backend_->device(), device_constants_);
  }
  constants_ = device_constants_->addresses;
  constant_bytes_ = device_constants_->bytes;
}

}  // namespace sardonyx
