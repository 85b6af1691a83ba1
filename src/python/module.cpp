// The nanobind module of the Python package; sardonyx/_sardonyx.pyi declares its types, and sardonyx/model.py is what
// users see.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "api/model.h"
#include "api/replicas.h"
#include "formats/open.h"
#include "fuse/passes.h"
#include "ops/op.h"
#include "python/memory.h"
#include "python/options.h"
#include "python/reports.h"
#include "python/tensors.h"
#include "sardonyx/sardonyx.h"
#include "support/background.h"
#include "support/error.h"
#include "target/describe.h"

using namespace sardonyx;
using namespace sardonyx::python;

namespace {

using Info = std::tuple<std::string, std::string, std::vector<std::string>, bool>;

std::vector<Info> infos(const std::vector<TensorInfo>& list) {
  std::vector<Info> out;
  for (const TensorInfo& t : list) out.emplace_back(t.name, std::string(name(t.dtype)), t.shape, t.known_rank);
  return out;
}

using LaunchTuple =
    std::tuple<std::string, std::vector<std::string>, std::vector<std::string>, std::string, std::vector<std::string>>;

void register_operator(const std::string& name, const std::map<std::string, std::vector<std::string>>& lists,
                       const std::string& source, const std::string& file, const std::vector<LaunchTuple>& launches,
                       const std::string& expression) {
  CustomOperator op;
  op.name = name;
  op.inputs = lists.at("inputs");
  op.outputs = lists.at("outputs");
  op.attributes = lists.at("attributes");
  op.workspace = lists.at("workspace");
  op.let = lists.at("let");
  op.require = lists.at("require");
  op.source = source;
  op.file = file;
  op.expression = expression;
  for (const auto& [kernel, grid, block, shared, arguments] : launches)
    op.launches.push_back({kernel, grid, block, shared, arguments});
  register_custom_operator(op);
}

// Exceptions of a callback can't propagate through the compiler's threads: the first one is stored, and raised at the
// end.
class ProgressCallback {
 public:
  explicit ProgressCallback(nb::object callback) : callback_(std::move(callback)) {}
  bool wanted() const { return callback_.is_valid() && !callback_.is_none(); }
  void operator()(const Progress& p) {
    const nb::gil_scoped_acquire gil;
    if (failure_ || !wanted()) return;
    try {
      callback_(std::string(p.stage), p.done, p.total);
    } catch (nb::python_error&) {
      failure_ = std::current_exception();
    }
  }
  // Later, inputs may need programs of their own, whose progress is not reported.
  void finish() {
    callback_ = nb::object();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  nb::object callback_;
  std::exception_ptr failure_;
};

// Address, size in bytes, and the object that owns the memory.
using OwnedMemory = std::tuple<std::uintptr_t, std::size_t, nb::object>;

// Models may end in threads without Python's lock, and after Python itself.
std::shared_ptr<const void> owner_of(nb::object object) {
  return {object.release().ptr(), [](const void* kept) {
            if (!nb::is_alive()) return;
            const nb::gil_scoped_acquire gil;
            nb::handle(static_cast<PyObject*>(const_cast<void*>(kept))).dec_ref();
          }};
}

std::map<std::string, model::Bytes> bytes_of(std::map<std::string, OwnedMemory>& memory) {
  std::map<std::string, model::Bytes> found;
  for (auto& [location, owned] : memory) {
    auto& [address, size, object] = owned;
    found[location] = {owner_of(std::move(object)), reinterpret_cast<const std::byte*>(address),
                       size};  // NOLINT(performance-no-int-to-ptr)
  }
  return found;
}

std::unique_ptr<Model> compile_model(const std::string& path, const nb::bytes& data, const nb::dict& options,
                                     std::shared_ptr<Communicator> communicator, nb::object progress,
                                     std::map<std::string, OwnedMemory> memory) {
  Options o = options_of(options);
  o.communicator = std::move(communicator);
  const auto callback = std::make_shared<ProgressCallback>(std::move(progress));
  if (callback->wanted()) o.progress = [callback](const Progress& p) { (*callback)(p); };
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data.data()), data.size());
  std::map<std::string, model::Bytes> weights = bytes_of(memory);
  std::unique_ptr<Model> model;
  {
    nb::gil_scoped_release release;
    // With bytes, `path` is the directory of their external data.
    if (!weights.empty())
      model = std::make_unique<Model>(parse_model(bytes, std::move(weights)), o);
    else
      model = bytes.empty() && !path.empty() ? Model::load(path, o) : Model::parse(bytes, o, path);
  }
  callback->finish();
  return model;
}

// The driver's handle of a stream, which is a number in Python; 0 for none.
void* stream_of(std::uintptr_t handle) { return reinterpret_cast<void*>(handle); }  // NOLINT(performance-no-int-to-ptr)

// The caller's memory for outputs; empty for outputs without.
std::vector<std::optional<TensorView>> places_of(const Model& m, const std::map<std::string, Raw>& given) {
  const std::vector<std::string> names = m.output_names();
  std::vector<std::optional<TensorView>> places(names.size());
  for (const auto& [output, raw] : given) {
    const auto found = std::find(names.begin(), names.end(), output);
    if (found == names.end())
      fail(ErrorKind::kInvalidArgument, "the model has no output '{}'; its outputs are: {}", output,
           fmt::join(names, ", "));
    places[static_cast<std::size_t>(found - names.begin())] =
        view_of(raw, fmt::format("the memory for output '{}'", output));
  }
  return places;
}

OutputMemory place_for(const Model& m, std::size_t k, const TensorView& place, DType dtype,
                       const std::vector<std::int64_t>& dims) {
  if (place.dtype != dtype || place.dims != dims)
    fail(ErrorKind::kInvalidArgument, "output '{}' is {} [{}]; the memory given for it is {} [{}]", m.output_names()[k],
         name(dtype), fmt::join(dims, ", "), name(place.dtype), fmt::join(place.dims, ", "));
  return {const_cast<void*>(place.data), place.on_device};
}

std::vector<TensorView> inputs_of(const Model& m, const std::map<std::string, Raw>& inputs) {
  std::map<std::string, TensorView> by_name;
  for (const auto& [input, raw] : inputs) by_name[input] = view_of(raw, fmt::format("input '{}'", input));
  return m.in_order(by_name);
}

// `given`: outputs for which the caller has memory; others are allocated in device memory with `on_device`.
nb::tuple run(Model& m, const std::map<std::string, Raw>& inputs, const std::map<std::string, Raw>& given,
              bool on_device, int threads, bool profile, std::uintptr_t stream, bool synchronize) {
  const std::vector<std::string> names = m.output_names();
  const auto places = places_of(m, given);
  const std::vector<TensorView> in = inputs_of(m, inputs);
  const std::shared_ptr<Gpu> gpu = on_device ? m.gpu() : nullptr;
  std::vector<PyTensor> out(names.size());
  std::vector<StepTime> times;
  OutputSink sink;
  sink.allocate = [&](std::size_t k, DType dtype, const std::vector<std::int64_t>& dims) {
    if (places[k]) return place_for(m, k, *places[k], dtype, dims);
    out[k] = allocate(gpu, dtype, dims);
    return OutputMemory{out[k].tensor.data, gpu != nullptr};
  };
  sink.take = [&](std::size_t k, Tensor&& t) {
    if (places[k]) return false;
    out[k].tensor = std::move(t);
    return true;
  };
  {
    nb::gil_scoped_release release;
    RunOptions o;
    o.threads = threads;
    o.stream = stream_of(stream);
    o.synchronize = synchronize || !m.gpu();
    if (profile) o.profile = &times;
    m.run(in, sink, o);
    if (gpu && !o.synchronize) {
      const std::shared_ptr<GpuEvent> ready = gpu->create_event();
      ready->record(o.stream);
      for (PyTensor& t : out) t.ready = ready;
    }
  }
  nb::dict result;
  for (std::size_t k = 0; k < out.size(); ++k)
    if (!places[k]) result[nb::str(names[k].c_str(), names[k].size())] = nb::cast(std::move(out[k]));
  nb::list steps;
  for (const StepTime& t : times) steps.append(nb::make_tuple(t.what, t.origin, t.seconds));
  return nb::make_tuple(result, steps);
}

// A copy between pinned memory and a GPU, to address, from address.
using BoundCopy = std::tuple<std::uintptr_t, std::uintptr_t, std::size_t>;

// A run with fixed tensors, so that the work that Python does for each run is done once. Python keeps the model and
// memory alive.
struct BoundRun {
  Model& model;
  std::vector<TensorView> inputs;
  std::vector<std::optional<TensorView>> places;
  RunOptions options{};
  std::shared_ptr<GpuEvent> done{};    ///< of the last run, if it was not waited for
  std::vector<BoundCopy> uploads{};    ///< before a run, in the stream's order
  std::vector<BoundCopy> downloads{};  ///< after it

  // The same run on other memory of the same types and sizes. Several threads may call it at a time.
  void at(const std::vector<std::uintptr_t>& in, const std::vector<std::uintptr_t>& out, std::uintptr_t stream) const {
    if (in.size() != inputs.size() || out.size() != places.size())
      fail(ErrorKind::kInvalidArgument, "{} inputs and {} outputs are given; the run has {} and {}", in.size(),
           out.size(), inputs.size(), places.size());
    std::vector<TensorView> here = inputs;
    // NOLINTBEGIN(performance-no-int-to-ptr): Python has addresses as numbers
    for (std::size_t k = 0; k < in.size(); ++k) here[k].data = reinterpret_cast<const void*>(in[k]);
    OutputSink sink;
    sink.allocate = [&](std::size_t k, DType dtype, const std::vector<std::int64_t>& dims) {
      OutputMemory place = place_for(model, k, *places[k], dtype, dims);
      place.data = reinterpret_cast<void*>(out[k]);
      return place;
    };
    // NOLINTEND(performance-no-int-to-ptr)
    RunOptions o = options;
    o.stream = stream_of(stream);
    model.run(here, sink, o);
  }

  void operator()() {
    OutputSink sink;
    sink.allocate = [&](std::size_t k, DType dtype, const std::vector<std::int64_t>& dims) {
      return place_for(model, k, *places[k], dtype, dims);
    };
    // NOLINTBEGIN(performance-no-int-to-ptr): Python has addresses as numbers
    for (const auto& [to, from, bytes] : uploads)
      model.gpu()->upload(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes, options.stream);
    model.run(inputs, sink, options);
    for (const auto& [to, from, bytes] : downloads)
      model.gpu()->download(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes, options.stream);
    // NOLINTEND(performance-no-int-to-ptr)
    if (done) done->record(options.stream);
  }
  void wait() const {
    if (done) done->synchronize();
  }
};

BoundRun bind(Model& m, const std::map<std::string, Raw>& inputs, const std::map<std::string, Raw>& outputs,
              int threads, std::uintptr_t stream, bool synchronize, const std::vector<BoundCopy>& uploads,
              const std::vector<BoundCopy>& downloads) {
  BoundRun b{m, inputs_of(m, inputs), places_of(m, outputs)};
  for (std::size_t k = 0; k < b.places.size(); ++k)
    if (!b.places[k]) fail(ErrorKind::kInvalidArgument, "no memory is given for output '{}'", m.output_names()[k]);
  b.options.threads = threads;
  b.options.stream = stream_of(stream);
  b.options.synchronize = synchronize || !m.gpu();
  if (!b.options.synchronize) b.done = m.gpu()->create_event();
  if (b.options.synchronize && !(uploads.empty() && downloads.empty()))
    fail(ErrorKind::kInvalidArgument, "copies of a bound run need a GPU's stream, and synchronize=False");
  b.uploads = uploads;
  b.downloads = downloads;
  return b;
}

std::map<std::string, std::uint64_t> memory_in_use(const Model& m) {
  const MemoryUse u = m.memory();
  return {{"constants", u.constants}, {"arena", u.arena}, {"now", u.now}, {"peak", u.peak}};
}

// One model on several devices, from models that Python owns; they must not be used elsewhere.
std::unique_ptr<Replicas> replicas(const nb::list& models) {
  std::vector<std::shared_ptr<Model>> list;
  for (const nb::handle m : models) list.push_back(nb::cast<std::shared_ptr<Model>>(m));
  return std::make_unique<Replicas>(std::move(list));
}

nb::dict run_replicas(const Replicas& r, const std::map<std::string, Raw>& inputs, int threads) {
  const std::vector<TensorView> in = inputs_of(r.front(), inputs);
  std::vector<HostTensor> out;
  {
    nb::gil_scoped_release release;
    RunOptions o;
    o.threads = threads;
    out = r.run(in, o);
  }
  const std::vector<std::string> names = r.front().output_names();
  nb::dict result;
  for (std::size_t k = 0; k < out.size(); ++k) {
    PyTensor t;
    t.tensor = std::move(out[k]);
    result[nb::str(names[k].c_str(), names[k].size())] = nb::cast(std::move(t));
  }
  return result;
}

std::shared_ptr<Communicator> join_group(const std::string& path, int rank, int size, const std::string& device,
                                         const std::string& transport, const std::string& library, double timeout) {
  GroupOptions o;
  o.path = path;
  o.rank = rank;
  o.size = size;
  o.device = device;
  o.transport = transport;
  o.library = library;
  o.timeout_seconds = timeout;
  return Communicator::join(o);
}

void translate(const std::exception_ptr& p, void*) {
  try {
    std::rethrow_exception(p);
  } catch (const Error& e) {
    const nb::object error =
        nb::module_::import_("sardonyx.errors").attr("of_code")(static_cast<int>(e.kind()), nb::str(e.what()));
    PyErr_SetObject(error.type().ptr(), error.ptr());
  }
}

}  // namespace

NB_MODULE(_sardonyx, m) {
  nb::register_exception_translator(translate);
  nb::set_leak_warnings(false);  // torch.compile, and other owners of models, keep them until the process ends
  define_tensors(m);
  define_memory(m);
  define_options(m);
  nb::class_<Model>(m, "Model")
      .def("inputs", [](const Model& m) { return infos(m.inputs()); })
      .def("outputs", [](const Model& m) { return infos(m.outputs()); })
      .def("metadata", &Model::metadata)
      .def("symbols", &Model::symbols)
      .def("output_dims",
           [](const Model& m, const std::map<std::string, std::vector<std::int64_t>>& dims) {
             std::vector<std::vector<std::int64_t>> found = m.output_dims(dims);
             const std::vector<std::string> names = m.output_names();
             nb::dict out;
             for (std::size_t k = 0; k < found.size(); ++k)
               out[nb::str(names[k].c_str(), names[k].size())] = nb::cast(found[k]);
             return out;
           })
      .def("device", &Model::device_name)
      .def("kernels", &kernels)
      .def("nodes", &nodes)
      .def("memory", &memory)
      .def("memory_in_use", &memory_in_use)
      .def("traffic", &traffic)
      .def("program_count", &Model::program_count)
      .def("wait", &Model::wait, nb::call_guard<nb::gil_scoped_release>())
      .def("compiled",
           [](const Model& m) {
             const Model::Compiled c = m.compiled();
             return nb::make_tuple(c.objects, c.ready, c.on_demand);
           })
      .def("quantization",
           [](const Model& m) { return nb::make_tuple(m.quantization().quantized, m.quantization().in_float); })
      .def(
          "save", [](const Model& m, const std::string& path) { m.save(path); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("bind", &bind)
      .def("run", &run);
  // For tests: nothing begins to compile in the background while it exists.
  nb::class_<BackgroundTexts::Pause>(m, "BackgroundPause").def(nb::init<>());
  nb::class_<Replicas>(m, "Replicas")
      .def("parts", &Replicas::parts)
      .def_prop_ro("batch", &Replicas::batch)
      .def("run", &run_replicas);
  m.def("replicas", &replicas);
  nb::class_<Communicator>(m, "Communicator", "A process's place in a group that computes together; see sardonyx.join.")
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size)
      .def("check", &Communicator::check, nb::call_guard<nb::gil_scoped_release>())
      .def("fail", &Communicator::fail, nb::call_guard<nb::gil_scoped_release>());
  m.def("join", &join_group, nb::arg("path"), nb::arg("rank"), nb::arg("size"), nb::arg("device"), nb::arg("transport"),
        nb::arg("library"), nb::arg("timeout"), nb::call_guard<nb::gil_scoped_release>());
  nb::class_<BoundRun>(m, "BoundRun")
      .def("__call__", &BoundRun::operator(), nb::call_guard<nb::gil_scoped_release>())
      .def("at", &BoundRun::at, nb::call_guard<nb::gil_scoped_release>())
      .def("wait", &BoundRun::wait, nb::call_guard<nb::gil_scoped_release>());
  m.def("compile", &compile_model, nb::arg("path"), nb::arg("data"), nb::arg("options"), nb::arg("communicator").none(),
        nb::arg("progress").none(), nb::arg("memory") = std::map<std::string, OwnedMemory>());
  m.def("code_report", &code_of);
  m.def("estimate", &estimate_of);
  m.def("pass_report", &passes_of);
  m.def("load", [](const std::string& path, const nb::dict& options) {
    const Options o = options_of(options);
    nb::gil_scoped_release release;
    return Model::load_program(path, o);
  });
  m.def("operators", [] {
    std::vector<std::tuple<std::string, std::string, int, std::string, std::string>> out;
    for (const OpDef* d : OpRegistry::instance().all())
      out.emplace_back(d->domain, d->name, d->min_opset, d->dtypes, d->notes);
    return out;
  });
  m.def("register_custom_operator", &register_operator);
  m.def("register_custom_operators", [](const std::string& file) { register_custom_operators(file); });
  m.def("custom_operators", &custom_operators);
  m.def("devices", [] {
    std::vector<std::tuple<std::string, std::string, std::string, int, std::uint64_t>> out;
    for (const DeviceInfo& d : devices()) out.emplace_back(d.name, d.description, d.target, d.threads, d.memory);
    return out;
  });
  m.def("verify_every_pass", &verify_every_pass, nb::arg("on"));  // for tests
  m.def("chips_json", &chips_json);
  m.def("user_cache_directory", [] { return user_cache_directory().string(); });
  m.attr("__version__") = std::string(version());
}
