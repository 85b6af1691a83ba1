// Reading and writing tensors; archives through libzip.
#include "tensor_files/tensor_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "onnx/external_data.h"
#include "onnx/load.h"
#include "support/error.h"
#include "tensor_files/npy.h"

namespace sardonyx {
namespace {

namespace fs = std::filesystem;

std::string lower_extension(const fs::path& file) {
  std::string e = file.extension().string();
  std::transform(e.begin(), e.end(), e.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return e;
}

std::span<const std::byte> bytes_of(std::string_view s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}

// An archive may announce far more than it contains, so memory that this machine does not have is refused before it is
// allocated.
void require_memory(std::uint64_t bytes, const std::string& where) {
  const std::uint64_t physical =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (bytes > physical)
    fail(ErrorKind::kInvalidArgument, "{}: the array takes {} bytes; this machine has {} bytes of memory", where, bytes,
         physical);
}

// Raw elements get the dtype that the model expects, if it has their size and numpy lacks it.
DType dtype_of(const NpyHeader& h, std::optional<DType> wanted, const std::string& where) {
  if (h.dtype) return *h.dtype;
  const bool numpy_lacks = wanted && (*wanted == DType::kBFloat16 || size_of(*wanted) == 1);
  const bool numpy_has = wanted && (*wanted == DType::kBool || *wanted == DType::kInt8 || *wanted == DType::kUInt8);
  if (!numpy_lacks || numpy_has || size_of(*wanted) != h.item_bytes)
    fail(ErrorKind::kInvalidArgument,
         "{}: raw elements of {} bytes, of a type that numpy does not know; use a .pb file, which names it", where,
         h.item_bytes);
  return *wanted;
}

Tensor tensor_of(const model::Tensor& t, const std::string& where) {
  try {
    t.require();
  } catch (const Error& e) {
    throw Error(e.kind(), where + ": " + e.what());
  }
  Tensor out = Tensor::allocate(t.dtype, t.dims);
  if (t.bytes) std::memcpy(out.data, t.data, t.bytes);
  return out;
}

std::pair<std::string, Tensor> read_pb(const fs::path& file) {
  const std::string bytes = read_file(file);
  model::Tensor t;
  try {
    t = onnx::parse_tensor(bytes_of(bytes));
  } catch (const Error& e) {
    throw Error(e.kind(), file.string() + ": " + e.what());
  }
  return {t.name, tensor_of(t, file.string())};
}

// The same for the size of the archive itself: deflate, the one compression that numpy uses, makes at most 1032 bytes
// of one.
void require_plausible(const zip_stat_t& s, std::uint64_t archive_bytes, const std::string& where) {
  if (s.comp_method != ZIP_CM_STORE && s.comp_method != ZIP_CM_DEFLATE)
    fail(ErrorKind::kInvalidArgument,
         "{}: it is compressed in a way that numpy does not know; save it again with numpy.savez", where);
  if (s.size / 1032 > archive_bytes)
    fail(ErrorKind::kInvalidArgument, "{}: the archive is damaged (it announces {} bytes, more than it can hold)",
         where, s.size);
}

struct Archive {
  zip_t* zip;
  explicit Archive(zip_t* z) : zip(z) {}
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;
  ~Archive() {
    if (zip) zip_discard(zip);
  }
};

std::string zip_message(int code) {
  zip_error_t e;
  zip_error_init_with_code(&e, code);
  std::string text = zip_error_strerror(&e);
  zip_error_fini(&e);
  return text;
}

void read_entry(zip_file_t* f, void* to, std::size_t bytes, const std::string& where) {
  auto* p = static_cast<char*>(to);
  while (bytes > 0) {
    const zip_int64_t n = zip_fread(f, p, bytes);
    if (n <= 0)
      fail(ErrorKind::kInvalidArgument, "{}: the archive is damaged ({}); save it again with numpy.savez", where,
           n < 0 ? zip_file_strerror(f) : "too short");
    p += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

Tensor read_array(zip_t* zip, zip_uint64_t index, const zip_stat_t& stat, std::optional<DType> wanted,
                  const std::string& where) {
  zip_file_t* f = zip_fopen_index(zip, index, 0);
  if (!f)
    fail(ErrorKind::kInvalidArgument, "{}: the archive can't be read ({}); save it again with numpy.savez", where,
         zip_strerror(zip));
  struct Close {
    zip_file_t* f;
    ~Close() { zip_fclose(f); }
  } close{f};
  std::string start(static_cast<std::size_t>(std::min<std::uint64_t>(stat.size, kMaxNpyHeader + 12)), '\0');
  read_entry(f, start.data(), start.size(), where);
  const NpyHeader h = parse_npy_header(bytes_of(start), stat.size, where);
  require_memory(2 * static_cast<std::uint64_t>(h.data_bytes), where);
  Tensor t = Tensor::allocate(dtype_of(h, wanted, where), h.dims);
  const std::size_t have = std::min(start.size() - h.data_offset, h.data_bytes);
  auto rest = std::make_unique_for_overwrite<std::byte[]>(h.data_bytes);
  std::memcpy(rest.get(), start.data() + h.data_offset, have);
  read_entry(f, rest.get() + have, h.data_bytes - have, where);
  char extra;  // to the end, so that libzip checks the sum
  if (have == h.data_bytes && start.size() > h.data_offset + have)
    extra = 0;
  else if (zip_fread(f, &extra, 1) < 0)
    fail(ErrorKind::kInvalidArgument, "{}: the archive is damaged ({}); save it again with numpy.savez", where,
         zip_file_strerror(f));
  read_npy_elements(h, {rest.get(), h.data_bytes}, static_cast<std::byte*>(t.data));
  return t;
}

NamedTensors read_npz(const fs::path& file, const DTypeOf* wanted) {
  int code = 0;
  Archive archive(zip_open(file.c_str(), ZIP_RDONLY, &code));
  if (!archive.zip) {
    // libzip also reports some damaged archives as missing files.
    const bool readable = ::access(file.c_str(), R_OK) == 0;
    if ((code == ZIP_ER_NOENT || code == ZIP_ER_OPEN) && !readable)
      fail(ErrorKind::kIo, "{}: {}", file.string(), zip_message(code));
    fail(ErrorKind::kInvalidArgument, "{}: this is not an .npz archive ({}); save it with numpy.savez", file.string(),
         zip_message(code));
  }
  NamedTensors out;
  const zip_int64_t count = zip_get_num_entries(archive.zip, 0);
  for (zip_int64_t k = 0; k < count; ++k) {
    zip_stat_t s;
    constexpr zip_uint64_t kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_METHOD;
    if (zip_stat_index(archive.zip, static_cast<zip_uint64_t>(k), 0, &s) != 0 || (s.valid & kNeeded) != kNeeded)
      fail(ErrorKind::kInvalidArgument, "{}: entry {} of the archive can't be read; save it again with numpy.savez",
           file.string(), k);
    std::string name = s.name;
    if (!name.ends_with(".npy")) continue;
    name.resize(name.size() - 4);
    std::optional<DType> dtype;
    if (wanted) {
      auto it = wanted->find(name);
      if (it == wanted->end()) continue;
      dtype = it->second;
    }
    for (const auto& [other, tensor] : out)
      if (other == name) fail(ErrorKind::kInvalidArgument, "{}: two arrays are called '{}'", file.string(), name);
    const std::string where = file.string() + ", array '" + name + "'";
    std::error_code ignored;
    require_plausible(s, fs::file_size(file, ignored), where);
    out.emplace_back(name, read_array(archive.zip, static_cast<zip_uint64_t>(k), s, dtype, where));
  }
  return out;
}

std::string npy_bytes(const Tensor& t) {
  std::string s = npy_header(t.dtype, t.dims);
  s.append(static_cast<const char*>(t.data), t.bytes());
  return s;
}

void write_npz(const fs::path& file, const NamedTensors& tensors) {
  int code = 0;
  Archive archive(zip_open(file.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code));
  if (!archive.zip) fail(ErrorKind::kIo, "{}: can't be written: {}", file.string(), zip_message(code));
  std::vector<std::string> kept;
  kept.reserve(tensors.size());
  for (const auto& [name, t] : tensors) {
    kept.push_back(npy_bytes(t));
    zip_source_t* source = zip_source_buffer(archive.zip, kept.back().data(), kept.back().size(), 0);
    if (!source) fail(ErrorKind::kIo, "{}: can't be written: {}", file.string(), zip_strerror(archive.zip));
    const zip_int64_t index = zip_file_add(archive.zip, (name + ".npy").c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      fail(ErrorKind::kIo, "{}: array '{}' can't be written: {}", file.string(), name, zip_strerror(archive.zip));
    }
    zip_set_file_compression(archive.zip, static_cast<zip_uint64_t>(index), ZIP_CM_STORE, 0);
  }
  if (zip_close(archive.zip) != 0)
    fail(ErrorKind::kIo, "{}: can't be written: {}", file.string(), zip_strerror(archive.zip));
  archive.zip = nullptr;
}

}  // namespace

std::string read_file(const fs::path& file, std::uint64_t limit) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(ErrorKind::kIo, "{}: {}", file.string(), std::strerror(errno));
  struct Close {
    int fd;
    ~Close() { ::close(fd); }
  } close{fd};
  struct stat s{};
  if (::fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) fail(ErrorKind::kIo, "{}: not a regular file", file.string());
  if (static_cast<std::uint64_t>(s.st_size) > limit)
    fail(ErrorKind::kIo, "{}: {} bytes, which is too large", file.string(), s.st_size);
  std::string out(static_cast<std::size_t>(s.st_size), '\0');
  for (std::size_t at = 0; at < out.size();) {
    const ssize_t n = ::read(fd, out.data() + at, out.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(ErrorKind::kIo, "{}: {}", file.string(), n < 0 ? std::strerror(errno) : "shorter than it was");
    at += static_cast<std::size_t>(n);
  }
  return out;
}

void write_file(const fs::path& file, std::string_view bytes) {
  const fs::path temporary = file.string() + ".writing-" + std::to_string(::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) fail(ErrorKind::kIo, "{}: can't be written: {}", file.string(), std::strerror(errno));
  bool ok = true;
  while (ok && !bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    ok = n > 0;
    if (ok) bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  int error = ok ? 0 : errno;
  if (::close(fd) != 0 && ok) error = errno;
  if (!error && ::rename(temporary.c_str(), file.c_str()) != 0) error = errno;
  if (!error) return;
  ::unlink(temporary.c_str());
  fail(ErrorKind::kIo, "{}: can't be written: {}", file.string(), std::strerror(error));
}

Tensor read_npy(const fs::path& file, std::optional<DType> dtype) {
  const MappedFile map(file);
  const std::span<const std::byte> all(map.data(), map.size());
  const NpyHeader h = parse_npy_header(all, all.size(), file.string());
  Tensor t = Tensor::allocate(dtype_of(h, dtype, file.string()), h.dims);
  read_npy_elements(h, all.subspan(h.data_offset), static_cast<std::byte*>(t.data));
  return t;
}

NamedTensors read_tensors(const fs::path& file, const DTypeOf* wanted) {
  const std::string e = lower_extension(file);
  if (e == ".npz") return read_npz(file, wanted);
  NamedTensors out;
  if (e == ".pb")
    out.push_back(read_pb(file));
  else if (e == ".npy")
    out.emplace_back(
        "", read_npy(file, wanted && wanted->size() == 1 ? std::optional(wanted->begin()->second) : std::nullopt));
  else
    fail(ErrorKind::kInvalidArgument, "{}: the file's name must end in .npy, .npz or .pb", file.string());
  return out;
}

NamedTensors read_test_data(const fs::path& folder, const std::string& prefix) {
  NamedTensors out;
  for (int k = 0;; ++k) {
    const fs::path file = folder / (prefix + "_" + std::to_string(k) + ".pb");
    if (!fs::exists(file)) return out;
    out.push_back(read_pb(file));
  }
}

bool is_tensor_file(const fs::path& file) {
  const std::string e = lower_extension(file);
  return e == ".npz" || e == ".npy" || e == ".pb";
}

void write_tensors(const fs::path& file, const NamedTensors& tensors) {
  const std::string e = lower_extension(file);
  if (e == ".npz") return write_npz(file, tensors);
  check(tensors.size() == 1, "{} tensors for one file", tensors.size());
  const auto& [name, t] = tensors[0];
  if (e == ".npy") return write_file(file, npy_bytes(t));
  check(e == ".pb", "a file of unknown kind: {}", file.string());
  write_file(file, onnx::serialize_tensor(name, t.dtype, t.dims, {static_cast<const std::byte*>(t.data), t.bytes()}));
}

void write_text(const std::string& file, const std::string& text) {
  if (file != "-") return write_file(file, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    fail(ErrorKind::kIo, "stdout can't be written");
}

}  // namespace sardonyx
