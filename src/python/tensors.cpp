// Tensors between Python and the library; DLPack is https://dmlc.github.io/dlpack, its rules for Python are those of
// the array API standard.
#include "python/tensors.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/memory.h"
#include "support/dtype.h"
#include "support/error.h"

namespace sardonyx::python {
namespace {

// DLPack (1.1) packs 4-bit elements and we do not, so those have no type. DLPack's bits of a complex number count both
// parts.
nb::dlpack::dtype dlpack_type(const DTypeInfo& t) {
  return {static_cast<std::uint8_t>(t.dlpack), static_cast<std::uint8_t>(8 * t.size), 1};
}

// DLPack's kinds of devices.
constexpr int kDlCpu = 1, kDlCuda = 2, kDlRocm = 10, kDlOther = 12;

// In the form of __dlpack_device__. Other libraries do not know simulated GPUs: the number is that of the chip, 0x90a
// for gfx90a.
std::pair<int, int> dlpack_device(const std::string& device) {
  if (device == "host") return {kDlCpu, 0};
  const std::size_t colon = device.find(':');
  const std::string kind = device.substr(0, colon), rest = device.substr(colon + 1);
  const bool sim = kind == "sim";
  const std::string digits = sim ? rest.substr(3) : rest;
  int number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number, sim ? 16 : 10);
  return {sim ? kDlOther : kind == "cuda" ? kDlCuda : kDlRocm, number};
}

std::string device_of(const PyTensor& t) { return t.gpu ? t.gpu->info().name : "host"; }

// The driver's handle for a stream of the array API, in which None and small numbers denote default streams.
GpuStream stream_of(const PyTensor& t, const nb::object& stream) {
  const bool cuda = dlpack_device(device_of(t)).first == kDlCuda;
  const std::intptr_t s = stream.is_none() ? (cuda ? 1 : 0) : nb::cast<std::intptr_t>(stream);
  if (cuda && s == 0)
    throw nb::value_error("stream 0 is ambiguous on CUDA: 1 is the legacy default stream, 2 that of each thread");
  return reinterpret_cast<GpuStream>(s);  // NOLINT(performance-no-int-to-ptr): drivers' handles are numbers in Python
}

// Returns None for a strided tensor. `like`: a stream of the GPU that owns the memory; None: host memory.
nb::object from_dlpack(nb::object value, const nb::object& like, bool writable) {
  nb::ndarray<nb::ro> a;
  if (writable) {
    nb::ndarray<> w;
    if (!nb::try_cast(value, w)) throw nb::type_error("no tensor that can be written to comes from its __dlpack__");
    a = nb::ndarray<nb::ro>(w.handle());
  } else if (!nb::try_cast(value, a)) {
    throw nb::type_error("no tensor comes from its __dlpack__");
  }
  PyTensor t;
  if (!like.is_none()) t.gpu = nb::cast<const PyStream&>(like).gpu;
  // Pinned memory of a GPU driver (CUDA 3, ROCm 11) and managed memory (13) are host memory as well.
  const int kind = a.device_type();
  const bool host = kind == kDlCpu || kind == 3 || kind == 11 || kind == 13;
  if (t.gpu ? std::pair(kind, a.device_id()) != dlpack_device(device_of(t)) : !host)
    throw nb::type_error("it is on another device");
  std::int64_t row_major = 1;
  bool contiguous = true;
  for (std::size_t k = a.ndim(); k-- > 0;) {
    contiguous &= a.shape(k) == 1 || a.stride(k) == row_major;
    row_major *= static_cast<std::int64_t>(a.shape(k));
  }
  if (!contiguous && a.size() > 0) return nb::none();
  const std::span<const DTypeInfo> types = all_dtypes();
  const auto found =
      std::ranges::find_if(types, [&](const DTypeInfo& d) { return d.dlpack >= 0 && dlpack_type(d) == a.dtype(); });
  if (found == types.end())
    fail(ErrorKind::kInvalidArgument, "an input's dtype (DLPack code {}, {} bits) is one that no model takes",
         a.dtype().code, a.dtype().bits);
  t.tensor.dtype = found->type;
  for (std::size_t k = 0; k < a.ndim(); ++k) t.tensor.dims.push_back(static_cast<std::int64_t>(a.shape(k)));
  t.tensor.data = const_cast<void*>(a.data());
  t.borrowed = std::move(a);
  return nb::cast(std::move(t));
}

// Streams with pinned memory for copies to the host, kept for later copies: creating them takes longer than most
// copies, and freeing pinned memory waits for all work of the GPU.
class Downloads {
 public:
  static void copy(const std::shared_ptr<Gpu>& gpu, void* to, const void* from, std::size_t bytes) {
    static auto* all = new Downloads;  // never destroyed: when the process ends, drivers may be unloaded
    std::unique_ptr<Way> way = all->take(gpu);
    way->transfers.download(to, from, bytes, way->stream.get());
    const std::lock_guard lock(all->mutex_);
    all->idle_[gpu.get()].push_back(std::move(way));
  }

 private:
  struct Way {
    explicit Way(const std::shared_ptr<Gpu>& gpu) : stream(gpu->create_stream()), transfers(gpu) {}
    std::shared_ptr<void> stream;
    GpuTransfers transfers;
  };
  std::unique_ptr<Way> take(const std::shared_ptr<Gpu>& gpu) {
    {
      const std::lock_guard lock(mutex_);
      auto& idle = idle_[gpu.get()];
      if (!idle.empty()) {
        std::unique_ptr<Way> way = std::move(idle.back());
        idle.pop_back();
        return way;
      }
    }
    return std::make_unique<Way>(gpu);
  }

  std::mutex mutex_;
  std::map<const Gpu*, std::vector<std::unique_ptr<Way>>> idle_;
};

// A copy in host memory.
PyTensor to_host(const PyTensor& t) {
  PyTensor copy = allocate(nullptr, t.tensor.dtype, t.tensor.dims);
  const nb::gil_scoped_release release;
  if (t.ready) t.ready->synchronize();
  Downloads::copy(t.gpu, copy.tensor.data, t.tensor.data, t.tensor.bytes());
  return copy;
}

// The tensor as nanobind's array, which supports DLPack; it keeps `self` alive.
nb::object as_dlpack(nb::handle self, const nb::object& stream, const nb::object& max_version,
                     const nb::object& dl_device, const nb::object& copy) {
  const PyTensor& t = nb::cast<const PyTensor&>(self);
  const std::pair<int, int> here = dlpack_device(device_of(t));
  if (t.gpu && !dl_device.is_none() && nb::cast<std::pair<int, int>>(dl_device) == std::pair(kDlCpu, 0)) {
    if (!copy.is_none() && !nb::cast<bool>(copy))
      throw nb::buffer_error("the tensor is in GPU memory and cannot be in host memory without a copy");
    return as_dlpack(nb::cast(to_host(t)), nb::none(), max_version, nb::none(), nb::none());
  }
  // -1: the caller needs no synchronisation.
  if (t.ready && (stream.is_none() || nb::cast<std::intptr_t>(stream) != -1)) t.ready->wait_in(stream_of(t, stream));
  if (const DTypeInfo& type = dtype_info(t.tensor.dtype); type.dlpack >= 0) {
    std::vector<std::size_t> shape(t.tensor.dims.begin(), t.tensor.dims.end());
    nb::object array = nb::cast(nb::ndarray<nb::array_api>(t.tensor.data, shape.size(), shape.data(), self, nullptr,
                                                           dlpack_type(type), here.first, here.second));
    return array.attr("__dlpack__")(nb::arg("max_version") = max_version, nb::arg("dl_device") = dl_device,
                                    nb::arg("copy") = copy);
  }
  throw nb::buffer_error(
      fmt::format("DLPack has no tensors of {} with one element in a byte", name(t.tensor.dtype)).c_str());
}

// Copies the elements of `from`, which has this tensor's dtype and dims, to `to`; complete when it returns.
void copy_from(PyTensor& to, const Raw& raw) {
  const TensorView from = view_of(raw, "what is copied");
  if (from.dtype != to.tensor.dtype || from.dims != to.tensor.dims)
    fail(ErrorKind::kInvalidArgument, "a tensor of {} [{}] can't be copied to one of {} [{}]", name(from.dtype),
         fmt::join(from.dims, ", "), name(to.tensor.dtype), fmt::join(to.tensor.dims, ", "));
  const std::size_t bytes = to.tensor.bytes();
  if (bytes == 0) return;
  const nb::gil_scoped_release release;
  const Device device = Device::open(device_of(to));
  device.copy(to.tensor.data, from.data, bytes, from.on_device ? CopyKind::kOnDevice : CopyKind::kToDevice);
  to.ready.reset();
}

}  // namespace

TensorView view_of(const Raw& raw, const std::string& what) {
  const auto& [address, dtype, dims, on_device] = raw;
  TensorView t;
  if (!parse_dtype(dtype, t.dtype))
    fail(ErrorKind::kInvalidArgument, "{} has dtype {}, which no model takes", what, dtype);
  t.dims = dims;
  t.data = reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr): Python has it as a number
  t.on_device = on_device;
  return t;
}

PyTensor allocate(const std::shared_ptr<Gpu>& gpu, DType dtype, const std::vector<std::int64_t>& dims) {
  if (!gpu) return {Tensor::allocate_result(dtype, dims)};
  std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
  bool empty = false;
  for (std::int64_t d : dims) {
    if (d < 0) fail(ErrorKind::kInvalidArgument, "a dim is negative ({})", d);
    empty |= d == 0;
    if (d > 0 && __builtin_mul_overflow(bytes, d, &bytes))
      fail(ErrorKind::kInvalidArgument, "a tensor of [{}] has too many elements", fmt::join(dims, ", "));
  }
  PyTensor t;
  t.gpu = gpu;
  t.tensor.dtype = dtype;
  t.tensor.dims = dims;
  t.tensor.owner = gpu->allocate(empty ? 1 : static_cast<std::size_t>(bytes));
  t.tensor.data = t.tensor.owner.get();
  return t;
}

// A part of a tensor's memory as a tensor that keeps it alive.
PyTensor part_of(const PyTensor& t, std::size_t offset, const std::string& dtype,
                 const std::vector<std::int64_t>& dims) {
  PyTensor part;
  if (!parse_dtype(dtype, part.tensor.dtype)) fail(ErrorKind::kInvalidArgument, "there is no dtype '{}'", dtype);
  part.tensor.dims = dims;
  const std::size_t size = size_of(part.tensor.dtype), whole = t.tensor.bytes();
  std::size_t bytes = size;
  for (const std::int64_t d : dims)
    if (d < 0 || __builtin_mul_overflow(bytes, static_cast<std::size_t>(d), &bytes))
      fail(ErrorKind::kInvalidArgument, "a part of [{}] elements is negative or too large", fmt::join(dims, ", "));
  if (!t.tensor.owner || offset % size != 0 || offset > whole || bytes > whole - offset)
    fail(ErrorKind::kInvalidArgument, "{} bytes from {} on are no part of a tensor of {} bytes", bytes, offset, whole);
  part.gpu = t.gpu;
  part.tensor.owner = t.tensor.owner;
  part.tensor.data = static_cast<char*>(t.tensor.data) + offset;
  return part;
}

// Host memory of `bytes` that a GPU copies from and to while the host goes on.
PyTensor pinned(const std::string& device, std::int64_t bytes) {
  if (device == "host") return allocate(nullptr, DType::kUInt8, {bytes});
  PyTensor t;
  t.tensor.dtype = DType::kUInt8;
  t.tensor.dims = {bytes};
  t.tensor.owner = open_gpu(device)->allocate_pinned(static_cast<std::size_t>(bytes));
  t.tensor.data = t.tensor.owner.get();
  return t;
}

void define_tensors(nb::module_& m) {
  nb::class_<PyTensor>(m, "Tensor",
                       "A row-major tensor in host or GPU memory: an output, memory of empty() and "
                       "to_device(), or another library's tensor.")
      .def_prop_ro(
          "dtype", [](const PyTensor& t) { return std::string(name(t.tensor.dtype)); }, "The dtype's name.")
      .def_prop_ro(
          "shape", [](const PyTensor& t) { return t.tensor.dims; }, "Sizes.")
      .def_prop_ro("device", &device_of, "\"host\", \"cuda:0\", ...: whose memory it lies in.")
      .def_prop_ro(
          "nbytes", [](const PyTensor& t) { return t.tensor.bytes(); }, "Bytes of all elements.")
      .def_prop_ro(
          "address", [](const PyTensor& t) { return reinterpret_cast<std::uintptr_t>(t.tensor.data); },
          "Where the first element is.")
      .def(
          "bytes",
          [](nb::handle self) {
            const PyTensor& t = nb::cast<const PyTensor&>(self);
            if (t.gpu) throw nb::type_error("the tensor is in GPU memory; numpy() copies it");
            const std::size_t shape[1] = {t.tensor.bytes()};
            return nb::ndarray<nb::numpy, std::uint8_t>(t.tensor.data, 1, shape, self);
          },
          "The host's memory of it, as an array that keeps it alive.")
      .def(
          "numpy",
          [](nb::object self) {
            const PyTensor& t = nb::cast<const PyTensor&>(self);
            const nb::object host = t.gpu ? nb::cast(to_host(t)) : self;
            return nb::module_::import_("sardonyx.arrays").attr("output_array")(host);
          },
          "As a numpy array: host memory without a copy; GPU memory is copied when it has been computed.")
      .def("_copy_from", &copy_from)
      .def("_part", &part_of)
      .def("_wait_in",
           [](const PyTensor& t, const PyStream& s, std::intptr_t handle) {
             // NOLINTNEXTLINE(performance-no-int-to-ptr): drivers' handles are numbers in Python
             if (t.ready) t.ready->wait_in(handle ? reinterpret_cast<GpuStream>(handle) : s.owned.get());
           })
      .def("__dlpack__", &as_dlpack, nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
           nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none())
      .def("__dlpack_device__", [](const PyTensor& t) { return dlpack_device(device_of(t)); })
      .def("__repr__", [](const PyTensor& t) {
        return fmt::format("<sardonyx.Tensor {} [{}] on {}>", name(t.tensor.dtype), fmt::join(t.tensor.dims, ", "),
                           device_of(t));
      });
  nb::class_<PyStream>(m, "Stream", "A stream of a GPU: its work is executed in order.")
      .def(
          "__init__",
          [](PyStream* self, const std::string& device) {
            new (self) PyStream;
            if (device == "host") return;
            self->gpu = open_gpu(device);
            self->owned = self->gpu->create_stream();
          },
          nb::arg("device"))
      .def_prop_ro(
          "device", [](const PyStream& s) { return s.gpu ? s.gpu->info().name : "host"; }, "The GPU's name.")
      .def_prop_ro(
          "handle", [](const PyStream& s) { return reinterpret_cast<std::uintptr_t>(s.owned.get()); },
          "The driver's handle (CUstream, hipStream_t); 0 on the host.")
      .def(
          "synchronize",
          [](const PyStream& s) {
            if (s.gpu) s.gpu->synchronize(s.owned.get());
          },
          nb::call_guard<nb::gil_scoped_release>(), "Waits until all its work is done.");
  m.def("from_dlpack", &from_dlpack, nb::arg("value"), nb::arg("like").none() = nb::none(),
        nb::arg("writable") = false);
  m.def("dlpack_device", &dlpack_device);
  m.def("pinned", &pinned);
  m.def("empty", [](const std::string& device, const std::string& dtype, const std::vector<std::int64_t>& dims) {
    DType type;
    if (!parse_dtype(dtype, type)) fail(ErrorKind::kInvalidArgument, "there is no dtype '{}'", dtype);
    return allocate(device == "host" ? nullptr : open_gpu(device), type, dims);
  });
}

}  // namespace sardonyx::python
