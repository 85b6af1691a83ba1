#include "python/memory.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "python/tensors.h"
#include "support/error.h"

namespace sardonyx::python {
namespace {

/// The Python class sardonyx._sardonyx.Memory: strided elements that somebody else keeps alive.
struct Memory {
  void* data = nullptr;
  std::string format;  ///< of Python's struct module; empty: it has none for these elements
  Py_ssize_t item = 1, bytes = 0;
  bool host = true, contiguous = true;
  std::vector<Py_ssize_t> shape, strides;  ///< strides in bytes
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  auto& m = *nb::inst_ptr<Memory>(self);
  if (!m.host) {
    PyErr_SetString(PyExc_BufferError, "the argument is in device memory; from_gpu() copies it");
    return -1;
  }
  if (m.format.empty()) {
    PyErr_SetString(PyExc_BufferError,
                    "Python's buffers have no elements of this type; numpy.asarray() gives an array");
    return -1;
  }
  if (!m.contiguous && (flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
    PyErr_SetString(PyExc_BufferError, "the argument has strides");
    return -1;
  }
  view->buf = m.data;
  view->itemsize = m.item;
  view->len = m.bytes;
  view->readonly = 0;
  view->format = (flags & PyBUF_FORMAT) != 0 ? m.format.data() : nullptr;
  view->ndim = static_cast<int>(m.shape.size());
  view->shape = (flags & PyBUF_ND) != 0 ? m.shape.data() : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? m.strides.data() : nullptr;
  view->suboffsets = nullptr;
  view->internal = nullptr;
  Py_INCREF(self);
  view->obj = self;
  return 0;
}

void describe(Memory* m, std::uintptr_t address, std::string format, Py_ssize_t item, std::vector<Py_ssize_t> shape,
              std::vector<Py_ssize_t> strides, bool host) {
  new (m) Memory;
  m->data = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): Python has it as a number
  m->format = std::move(format);
  m->item = item;
  m->host = host;
  m->shape = std::move(shape);
  m->strides = std::move(strides);
  if (m->shape.size() != m->strides.size()) throw nb::value_error("as many strides as dims");
  m->bytes = item;
  for (std::size_t k = m->shape.size(); k-- > 0;) {
    m->contiguous &= m->shape[k] == 1 || m->strides[k] == m->bytes;
    if (m->shape[k] < 0 || __builtin_mul_overflow(m->bytes, m->shape[k], &m->bytes))
      throw nb::value_error("dims that overflow");
  }
}

/// A tensor at an address of a device ("host" too), for DLPack; `keep` lives as long as it.
PyTensor borrowed_tensor(const std::string& device, const std::string& dtype, const std::vector<std::int64_t>& dims,
                         std::uintptr_t address, nb::object keep) {
  PyTensor t;
  if (!parse_dtype(dtype, t.tensor.dtype)) fail(ErrorKind::kInvalidArgument, "there is no dtype '{}'", dtype);
  t.tensor.dims = dims;
  t.tensor.data = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): Python has it as a number
  if (device != "host") t.gpu = open_gpu(device);
  auto* kept = new nb::object(std::move(keep));
  t.tensor.owner = std::shared_ptr<void>(t.tensor.data, [kept](void*) {
    const nb::gil_scoped_acquire gil;
    delete kept;
  });
  return t;
}

}  // namespace

void define_memory(nb::module_& m) {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};
  nb::class_<Memory>(m, "Memory", nb::type_slots(slots), "Strided memory with Python's buffer protocol.")
      .def("__init__", &describe, nb::arg("address"), nb::arg("format"), nb::arg("item"), nb::arg("shape"),
           nb::arg("strides"), nb::arg("host"));
  m.def("borrowed_tensor", &borrowed_tensor);
}

}  // namespace sardonyx::python
