#include "cudaShare.h"

#include <chrono>

namespace tw {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

void requireSharing(const CudaApi &api) {
  if (!api.cuIpcGetMemHandle || !api.cuIpcOpenMemHandle || !api.cuIpcCloseMemHandle || !api.cuMemGetAddressRange) {
    fail("this driver cannot share memory between processes");
  }
}

/** Another process's allocation in this one's address space. */
class OpenedMemory {
 public:
  OpenedMemory(const CudaDevice &device, const CuIpcHandle &handle) : device_(device) {
    device_.use().cuIpcOpenMemHandle(&address_, handle, CU_IPC_LAZY_PEERS);
  }
  ~OpenedMemory() { device_.useQuietly().cuIpcCloseMemHandle.raw(address_); }
  OpenedMemory(const OpenedMemory &) = delete;
  OpenedMemory &operator=(const OpenedMemory &) = delete;
  CuAddress address() const { return address_; }

 private:
  const CudaDevice &device_;
  CuAddress address_ = 0;
};

}  // namespace

CudaSharedHandle shareMemory(const CudaMemory &memory) {
  const CudaApi &api = memory.device()->use();
  requireSharing(api);
  CudaSharedHandle shared;
  api.cuIpcGetMemHandle(&shared.handle, memory.address());
  CuAddress base = 0;
  size_t bytes = 0;
  api.cuMemGetAddressRange(&base, &bytes, memory.address());
  shared.offset = memory.address() - base;
  return shared;
}

CudaShareTimes copyFromProcess(const CudaMemory &target, size_t offset, const CudaSharedHandle &source,
                               size_t sourceOffset, size_t bytes) {
  CudaShareTimes times;
  const CudaApi &api = target.device()->use();
  requireSharing(api);
  auto begin = Clock::now();
  const OpenedMemory opened(*target.device(), source.handle);
  CuAddress base = 0;
  size_t size = 0;
  // Where the driver does not say how long it is, the sender is believed.
  if (api.cuMemGetAddressRange.raw(&base, &size, opened.address()) != CU_SUCCESS) size = SIZE_MAX;
  if (!isInside(source.offset, 0, size) || !isInside(sourceOffset, bytes, size - source.offset)) {
    fail("the other process's memory ends before byte " + std::to_string(sourceOffset) + " + " + std::to_string(bytes));
  }
  const CudaStream stream(target.device());
  times.opening = secondsSince(begin);
  begin = Clock::now();
  api.cuMemcpyDtoDAsync(target.address() + offset, opened.address() + source.offset + sourceOffset, bytes,
                        stream.get());
  api.cuStreamSynchronize(stream.get());
  times.copying = secondsSince(begin);
  return times;
}

}  // namespace tw
