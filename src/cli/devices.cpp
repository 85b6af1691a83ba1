// sardonyx devices: what models can run on, and the chips that code can be generated for.
#include <fmt/format.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "device/device.h"
#include "sardonyx/sardonyx.h"
#include "target/describe.h"
#include "tensor_files/tensor_files.h"

namespace sardonyx::cli {

void devices_command(const Arguments& arguments) {
  if (!arguments.chips_json.empty()) return write_text(arguments.chips_json, chips_json());
  if (arguments.list_chips) {
    fmt::print("{}", chips_markdown());
    return;
  }
  const DeviceInfo host = devices().front();
  const std::string& arch = host.target;
  std::string cpu = arch, features;
  if (const std::size_t second = arch.find(' ', arch.find(' ') + 1); second != std::string::npos) {
    cpu = arch.substr(0, second);
    features = arch.substr(second + 1);
  }
  fmt::print("{}  {}, {} threads, {}; code for {}\n", host.name, printable(host.description), host.threads,
             human_bytes(static_cast<double>(host.memory)), cpu);
  std::string kept;
  for (const char* f : {"+avx2", "+fma", "+f16c", "+avx512f", "+avx512vnni", "+avx512bf16", "+avx512fp16", "+amx-int8",
                        "+amx-bf16", "+neon", "+sve"})
    if (("," + features + ",").find("," + std::string(f) + ",") != std::string::npos)
      kept += std::string(" ") + (f + 1);
  if (!kept.empty()) fmt::print("      with{}\n", kept);
  std::vector<std::string> problems;
  for (const GpuInfo& g : list_gpus(&problems))
    fmt::print("{}  {}, {} compute units, {}; code for {}\n", g.name, printable(g.description), g.units,
               human_bytes(static_cast<double>(g.memory)), g.target);
  for (const std::string& p : problems) fmt::print("none  {}\n", printable(p));
}

}  // namespace sardonyx::cli
