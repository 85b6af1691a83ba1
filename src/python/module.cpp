// The nanobind module behind the Python package; sardonyx/_sardonyx.pyi says its types, sardonyx/model.py is what users
// see.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <exception>
#include <utility>

#include "api/code_report.h"
#include "api/model.h"
#include "api/report.h"
#include "ops/op.h"
#include "sardonyx/sardonyx.h"
#include "support/error.h"

namespace nb = nanobind;
using namespace sardonyx;

namespace {

// A tensor on the way in: address, dtype's name, dims. The Python side keeps it alive, and row-major.
using Raw = std::tuple<std::uintptr_t, std::string, std::vector<std::int64_t>>;
using Info = std::tuple<std::string, std::string, std::vector<std::string>, bool>;

// An output, or a tensor of another library that DLPack brought (`borrowed` keeps it alive).
struct PyTensor {
  Tensor tensor;
  nb::ndarray<nb::ro> borrowed;
};

std::vector<Info> infos(const std::vector<TensorInfo>& list) {
  std::vector<Info> out;
  for (const TensorInfo& t : list) out.emplace_back(t.name, std::string(name(t.dtype)), t.shape, t.known_rank);
  return out;
}

// DLPack's (1.1) types. It packs 4-bit elements and we do not, so those have none.
constexpr std::array<std::pair<DType, nb::dlpack::dtype>, 20> kDlpackTypes = {{
    {DType::kBool, {6, 8, 1}},
    {DType::kInt8, {0, 8, 1}},
    {DType::kInt16, {0, 16, 1}},
    {DType::kInt32, {0, 32, 1}},
    {DType::kInt64, {0, 64, 1}},
    {DType::kUInt8, {1, 8, 1}},
    {DType::kUInt16, {1, 16, 1}},
    {DType::kUInt32, {1, 32, 1}},
    {DType::kUInt64, {1, 64, 1}},
    {DType::kFloat16, {2, 16, 1}},
    {DType::kBFloat16, {4, 16, 1}},
    {DType::kFloat32, {2, 32, 1}},
    {DType::kFloat64, {2, 64, 1}},
    {DType::kFloat8E4M3FN, {10, 8, 1}},
    {DType::kFloat8E4M3FNUZ, {11, 8, 1}},
    {DType::kFloat8E5M2, {12, 8, 1}},
    {DType::kFloat8E5M2FNUZ, {13, 8, 1}},
    {DType::kFloat8E8M0, {14, 8, 1}},
    {DType::kComplex64, {5, 64, 1}},
    {DType::kComplex128, {5, 128, 1}},
}};

// None for a strided tensor.
nb::object from_dlpack(nb::object value) {
  nb::ndarray<nb::ro> a;
  if (!nb::try_cast(value, a)) throw nb::type_error("no tensor comes from its __dlpack__");
  if (a.device_type() != nb::device::cpu::value) throw nb::type_error("it lies on another device");
  std::int64_t row_major = 1;
  bool contiguous = true;
  for (std::size_t k = a.ndim(); k-- > 0;) {
    contiguous &= a.shape(k) == 1 || a.stride(k) == row_major;
    row_major *= static_cast<std::int64_t>(a.shape(k));
  }
  if (!contiguous && a.size() > 0) return nb::none();
  PyTensor t;
  const auto* found = kDlpackTypes.data();
  while (found != kDlpackTypes.data() + kDlpackTypes.size() && !(found->second == a.dtype())) ++found;
  if (found == kDlpackTypes.data() + kDlpackTypes.size())
    fail(ErrorKind::kInvalidArgument, "an input's dtype (DLPack code {}, {} bits) is one that no model takes",
         a.dtype().code, a.dtype().bits);
  t.tensor.dtype = found->first;
  for (std::size_t k = 0; k < a.ndim(); ++k) t.tensor.dims.push_back(static_cast<std::int64_t>(a.shape(k)));
  t.tensor.data = const_cast<void*>(a.data());
  t.borrowed = std::move(a);
  return nb::cast(std::move(t));
}

// The tensor as nanobind's array, which speaks DLPack; it keeps `self` alive.
nb::object as_dlpack(nb::handle self) {
  const Tensor& t = nb::cast<const PyTensor&>(self).tensor;
  for (const auto& [dtype, type] : kDlpackTypes) {
    if (dtype != t.dtype) continue;
    std::vector<std::size_t> shape(t.dims.begin(), t.dims.end());
    return nb::cast(nb::ndarray<nb::array_api>(t.data, shape.size(), shape.data(), self, nullptr, type));
  }
  throw nb::buffer_error(fmt::format("DLPack has no tensors of {} with one element in a byte", name(t.dtype)).c_str());
}

// What a callback raises can't pass through the compiler's threads: the first is kept, and raised when all is done.
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
  // Later, inputs may need programs of their own: that is not reported.
  void finish() {
    callback_ = nb::object();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  nb::object callback_;
  std::exception_ptr failure_;
};

std::unique_ptr<Model> compile_model(const std::string& path, nb::bytes data, const std::string& device,
                                     const std::string& precision, int threads, const std::string& cache,
                                     const std::map<std::string, std::int64_t>& dims, bool fuse, bool all_outputs,
                                     bool graphs, std::uint64_t device_memory_limit, nb::object progress) {
  Options o;
  o.device = device;
  o.precision = precision;
  o.threads = threads;
  o.cache_dir = cache;
  o.dims = dims;
  o.fuse = fuse;
  o.all_outputs = all_outputs;
  o.graphs = graphs;
  o.device_memory_limit = device_memory_limit;
  const auto callback = std::make_shared<ProgressCallback>(std::move(progress));
  if (callback->wanted()) o.progress = [callback](const Progress& p) { (*callback)(p); };
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data.data()), data.size());
  std::unique_ptr<Model> model;
  {
    nb::gil_scoped_release release;
    model = path.empty() ? Model::parse(bytes, o) : Model::load(path, o);
  }
  callback->finish();
  return model;
}

nb::tuple run(Model& m, const std::map<std::string, Raw>& inputs, int threads, bool profile) {
  std::map<std::string, Tensor> in;
  for (const auto& [input, raw] : inputs) {
    Tensor t;
    if (!parse_dtype(std::get<1>(raw), t.dtype))
      fail(ErrorKind::kInvalidArgument, "input '{}' has dtype {}, which no model takes", input, std::get<1>(raw));
    t.data = reinterpret_cast<void*>(std::get<0>(raw));
    t.dims = std::get<2>(raw);
    in[input] = std::move(t);
  }
  std::vector<Tensor> out;
  std::vector<StepTime> times;
  {
    nb::gil_scoped_release release;
    RunOptions o;
    o.threads = threads;
    if (profile) o.profile = &times;
    out = m.run(in, o);
  }
  nb::dict result;
  const std::vector<std::string> names = m.output_names();
  for (std::size_t k = 0; k < out.size(); ++k)
    result[nb::str(names[k].c_str(), names[k].size())] = nb::cast(PyTensor{std::move(out[k]), {}});
  nb::list steps;
  for (const StepTime& t : times) steps.append(nb::make_tuple(t.what, t.origin, t.seconds));
  return nb::make_tuple(result, steps);
}

const Executor& program_of(const Model& m) {
  if (!m.executor())
    fail(ErrorKind::kUnsupported,
         "the model's code depends on the value of an input, so it is compiled when it runs; profile() shows its "
         "kernels");
  return *m.executor();
}

nb::list kernels(const Model& m) {
  nb::list out;
  for (const StepReport& s : report(program_of(m).program()).steps)
    if (is_launch(s.kind)) out.append(nb::make_tuple(std::string(name(s.kind)), s.name, s.nodes));
  return out;
}

// Of a model file or of bytes, compiled for a GPU that need not be here.
nb::list code_of(const std::string& path, nb::bytes data, const std::string& target, const std::string& cache,
                 const std::map<std::string, std::int64_t>& dims) {
  Options o;
  o.cache_dir = cache;
  o.dims = dims;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data.data()), data.size());
  std::vector<KernelReport> kernels;
  {
    nb::gil_scoped_release release;
    kernels = code_report(*Model::compile_for(target, path.empty() ? onnx::parse(bytes) : onnx::load(path), o));
  }
  const auto or_none = [](const auto& x) { return x ? nb::cast(*x) : nb::none(); };
  nb::list out;
  for (const KernelReport& k : kernels) {
    nb::dict d;
    d["kernel"] = k.code.symbol;
    d["nodes"] = nb::tuple(nb::cast(k.nodes));
    d["vgprs"] = or_none(k.code.vgprs);
    d["agprs"] = or_none(k.code.agprs);
    d["sgprs"] = or_none(k.code.sgprs);
    d["vgpr_spills"] = or_none(k.code.vgpr_spills);
    d["sgpr_spills"] = or_none(k.code.sgpr_spills);
    d["scratch_bytes"] = or_none(k.code.scratch);
    d["lds_bytes"] = k.code.lds;
    d["waves_per_simd"] = k.waves > 0 ? nb::cast(k.waves) : nb::none();
    d["code_bytes"] = k.code.code_bytes;
    d["instructions"] = k.code.instructions;
    d["matrix_instructions"] = k.code.matrix_instructions;
    d["verdict"] = k.verdict;
    out.append(d);
  }
  return out;
}

std::map<std::string, std::size_t> memory(const Model& m, const std::map<std::string, std::int64_t>& dims) {
  const std::vector<std::string> symbols = m.symbols();
  for (const auto& [dim, size] : dims)
    if (std::find(symbols.begin(), symbols.end(), dim) == symbols.end())
      fail(ErrorKind::kInvalidArgument, "the inputs have no dim '{}'; their symbols are: {}", dim,
           fmt::join(symbols, ", "));
  const MemoryReport r = memory_report(program_of(m), dims);
  return {{"weights", r.weights}, {"inputs", r.inputs},           {"outputs", r.outputs},
          {"arena", r.arena},     {"temporaries", r.temporaries}, {"unplanned", static_cast<std::size_t>(r.unplanned)}};
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
  nb::class_<PyTensor>(m, "Tensor", "Memory of the library: an output, or another library's tensor.")
      .def_prop_ro("dtype", [](const PyTensor& t) { return std::string(name(t.tensor.dtype)); })
      .def_prop_ro("shape", [](const PyTensor& t) { return t.tensor.dims; })
      .def_prop_ro("address", [](const PyTensor& t) { return reinterpret_cast<std::uintptr_t>(t.tensor.data); })
      .def("bytes",
           [](nb::handle self) {
             const Tensor& t = nb::cast<const PyTensor&>(self).tensor;
             const std::size_t shape[1] = {t.bytes()};
             return nb::ndarray<nb::numpy, std::uint8_t>(t.data, 1, shape, self);
           })
      .def("__dlpack__",
           [](nb::handle self, nb::kwargs arguments) { return as_dlpack(self).attr("__dlpack__")(**arguments); })
      .def("__dlpack_device__", [](const PyTensor&) { return std::make_tuple(nb::device::cpu::value, 0); });
  nb::class_<Model>(m, "Model")
      .def("inputs", [](const Model& m) { return infos(m.inputs()); })
      .def("outputs", [](const Model& m) { return infos(m.outputs()); })
      .def("metadata",
           [](const Model& m) {
             const auto& all = m.source().metadata;
             return std::map<std::string, std::string>(all.begin(), all.end());
           })
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
      .def("kernels", &kernels)
      .def("memory", &memory)
      .def("program_count", &Model::program_count)
      .def(
          "save", [](const Model& m, const std::string& path) { m.save(path); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("run", &run);
  m.def("compile", &compile_model, nb::arg("path"), nb::arg("data"), nb::arg("device"), nb::arg("precision"),
        nb::arg("threads"), nb::arg("cache_dir"), nb::arg("dims"), nb::arg("fuse"), nb::arg("all_outputs"),
        nb::arg("graphs"), nb::arg("device_memory_limit"), nb::arg("progress").none());
  m.def("code_report", &code_of);
  m.def(
      "load",
      [](const std::string& path, int threads, const std::string& device) {
        return Model::load_program(path, threads, device);
      },
      nb::call_guard<nb::gil_scoped_release>());
  m.def("operators", [] {
    std::vector<std::tuple<std::string, std::string, int, std::string, std::string>> out;
    for (const OpDef* d : OpRegistry::instance().all())
      out.emplace_back(d->domain, d->name, d->min_opset, d->dtypes, d->notes);
    return out;
  });
  m.def("devices", [] {
    std::vector<std::tuple<std::string, std::string, std::string, int, std::uint64_t>> out;
    for (const DeviceInfo& d : devices()) out.emplace_back(d.name, d.description, d.target, d.threads, d.memory);
    return out;
  });
  m.def("user_cache_directory", [] { return user_cache_directory().string(); });
  m.def("from_dlpack", &from_dlpack);
  m.attr("__version__") = std::string(version());
}
