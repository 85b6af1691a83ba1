// See trace.h.
#include "sim/exec/trace.h"

#include <fmt/format.h>

#include "sim/exec/code_image.h"

namespace sardonyx::sim {

const Tracer* Tracer::of(const Launch& launch, const Wave& w) {
  const Config& c = *launch.config;
  if (c.traceKernel.empty() || (c.traceKernel != launch.kernel->name && c.traceKernel != launch.kernel->shown) ||
      c.traceWorkgroup != w.group->flat || c.traceWave != w.id)
    return nullptr;
  static Tracer tracer;
  static std::string open;
  if (!tracer.file_ || open != c.traceFile) {
    if (tracer.file_ && tracer.file_ != stderr) std::fclose(tracer.file_);
    tracer.file_ = c.traceFile.empty() ? stderr : std::fopen(c.traceFile.c_str(), "w");
    if (!tracer.file_) tracer.file_ = stderr;
    open = c.traceFile;
  }
  return &tracer;
}

void Tracer::print(Wave& w, const Inst& in) const {
  std::string out = fmt::format("{:6x}: {}\n", in.pc - w.code->base(), w.code->text(in.pc));
  for (int i = 0; i < in.nwrites; ++i) {
    const RegRange& r = in.writes[i];
    for (int k = 0; k < r.count; ++k) {
      if (r.file == RegFile::kSgpr) {
        out += fmt::format("          s{} = 0x{:08x}\n", r.index + k, w.s[r.index + k]);
        continue;
      }
      const std::uint32_t* row = (r.file == RegFile::kVgpr ? w.v : w.a) + (r.index + k) * w.lanes;
      out += fmt::format("          {}{} =", r.file == RegFile::kVgpr ? 'v' : 'a', r.index + k);
      for (int l = 0; l < w.lanes; ++l) out += w.mask >> l & 1 ? fmt::format(" {:08x}", row[l]) : " --------";
      out += '\n';
    }
  }
  out += fmt::format("          exec = 0x{:x} vcc = 0x{:x} scc = {}\n", w.exec(), w.vcc(), w.scc ? 1 : 0);
  std::fwrite(out.data(), 1, out.size(), file_);
  std::fflush(file_);
}

}  // namespace sardonyx::sim
