// Joins a group: chooses how a device exchanges tensors.
#include "sardonyx/communicator.h"

#include "collective/transports.h"
#include "support/error.h"

namespace sardonyx {

std::shared_ptr<Communicator> Communicator::join(const GroupOptions& options) {
  const std::string& t = options.transport;
  if (t != "auto" && t != "host" && t != "library")
    sardonyx::fail(ErrorKind::kInvalidArgument, "there is no transport '{}'; use 'auto', 'host' or 'library'", t);
  std::shared_ptr<Gpu> gpu;
  if (options.device != "host") gpu = open_gpu(options.device);
  // A simulated card has no such library, except one that is named explicitly (in tests).
  const bool card = gpu && (!gpu->info().simulated || (t == "library" && !options.library.empty()));
  if (t == "library" && !card)
    sardonyx::fail(ErrorKind::kInvalidArgument, "NCCL and RCCL are for GPUs; for '{}' use the transport 'host'",
                   options.device);
  auto group = std::make_unique<Group>(options.path, options.rank, options.size, options.timeout_seconds);
  if (card && t != "host") return library_communicator(std::move(group), std::move(gpu), options);
  return shared_memory_communicator(std::move(group), std::move(gpu));
}

}  // namespace sardonyx
