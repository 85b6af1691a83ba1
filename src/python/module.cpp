// The nanobind module behind the Python package.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "api/model.h"
#include "support/version.h"

namespace nb = nanobind;
using namespace sardonyx;

namespace {

// A tensor on the way in: address, dtype name, dims. The Python side keeps the array alive and contiguous.
using Raw = std::tuple<std::uintptr_t, std::string, std::vector<std::int64_t>>;

// Owns an output for numpy.
struct Buffer {
  HostTensor tensor;
};

std::unique_ptr<Model> make(const std::string& path, nb::bytes data, int threads, const std::string& cache, const std::map<std::string, std::int64_t>& dims, bool fuse,
                            bool all_outputs) {
  ModelOptions o;
  o.threads = threads;
  o.cache_dir = cache;
  o.dims = dims;
  o.fuse = fuse;
  o.all_outputs = all_outputs;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data.data()), data.size());
  nb::gil_scoped_release release;
  return path.empty() ? Model::parse(bytes, o) : Model::load(path, o);
}

}  // namespace

NB_MODULE(_sardonyx, m) {
  static PyObject* error_type = PyErr_NewException("sardonyx.Error", PyExc_RuntimeError, nullptr);
  m.attr("Error") = nb::borrow(error_type);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& e) {
      nb::object o = nb::borrow(error_type)(nb::str(e.what()));
      o.attr("kind") = static_cast<int>(e.kind());
      PyErr_SetObject(error_type, o.ptr());
    }
  });
  nb::class_<Buffer>(m, "Buffer")
      .def_prop_ro("dtype", [](const Buffer& b) { return std::string(name(b.tensor.dtype)); })
      .def_prop_ro("shape", [](const Buffer& b) { return b.tensor.dims; })
      .def("bytes", [](nb::handle self) {
        Buffer& b = nb::cast<Buffer&>(self);
        const std::size_t shape[1] = {b.tensor.bytes()};
        return nb::ndarray<nb::numpy, std::uint8_t>(b.tensor.data, 1, shape, self);
      });
  nb::class_<Model>(m, "Model")
      .def("inputs", [](const Model& m) {
        std::vector<std::tuple<std::string, std::string, std::vector<std::string>>> out;
        for (const TensorInfo& t : m.inputs()) out.emplace_back(t.name, std::string(name(t.dtype)), t.shape);
        return out;
      })
      .def("outputs", [](const Model& m) {
        std::vector<std::tuple<std::string, std::string, std::vector<std::string>>> out;
        for (const TensorInfo& t : m.outputs()) out.emplace_back(t.name, std::string(name(t.dtype)), t.shape);
        return out;
      })
      .def("output_names", &Model::output_names)
      .def("metadata", [](const Model& m) { return std::map<std::string, std::string>(m.source().metadata.begin(), m.source().metadata.end()); })
      .def("run", [](Model& m, const std::map<std::string, Raw>& inputs, int threads, bool profile) {
        std::map<std::string, HostTensor> in;
        for (const auto& [n, r] : inputs) {
          HostTensor t;
          if (!parse_dtype(std::get<1>(r), t.dtype)) fail(ErrorKind::kInvalidArgument, "input '{}' has dtype {}, which no model takes", n, std::get<1>(r));
          t.data = reinterpret_cast<void*>(std::get<0>(r));
          t.dims = std::get<2>(r);
          in[n] = std::move(t);
        }
        std::vector<HostTensor> out;
        std::vector<StepTime> times;
        {
          nb::gil_scoped_release release;
          RunOptions o;
          o.threads = threads;
          if (profile) o.profile = &times;
          out = m.run(in, o);
        }
        nb::list result;
        for (HostTensor& t : out) result.append(nb::cast(Buffer{std::move(t)}));
        nb::list steps;
        for (const StepTime& t : times) steps.append(nb::make_tuple(t.what, t.origin, t.seconds));
        return nb::make_tuple(result, steps);
      });
  m.attr("__version__") = std::string(version());
  m.def("make", &make);
}
