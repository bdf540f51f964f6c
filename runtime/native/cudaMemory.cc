#include "cudaMemory.h"

namespace tw {
namespace {

constexpr size_t LARGEST = size_t{1} << 46;

size_t checkedBytes(size_t bytes, const char *what) {
  if (bytes == 0 || bytes > LARGEST) fail("Cannot allocate " + std::to_string(bytes) + " bytes of " + what);
  return bytes;
}

}  // namespace

CudaMemory::CudaMemory(std::shared_ptr<CudaDevice> device, size_t bytes)
    : device_(std::move(device)), size_(checkedBytes(bytes, "device memory")) {
  const CudaApi &api = device_->use();
  const CuResult result = api.cuMemAlloc.raw(&address_, size_);
  if (result != CU_SUCCESS) api.fail(result, "cuMemAlloc_v2", std::to_string(size_) + " bytes were asked for");
}

CudaMemory::CudaMemory(std::shared_ptr<CudaDevice> device, size_t bytes, size_t most)
    : device_(std::move(device)),
      size_(checkedBytes(bytes, "addresses of a device")),
      reserved_(std::make_unique<CudaReserved>(device_, bytes, most)) {
  address_ = reserved_->address();
}

CudaMemory::~CudaMemory() {
  if (!reserved_) device_->useQuietly().cuMemFree.raw(address_);
}

CudaReserved &CudaMemory::reserved() const {
  if (!reserved_) fail("map: this memory was not reserved, but allocated");
  return *reserved_;
}

void CudaMemory::requireUsable(size_t offset, size_t length, const std::string &what) const {
  requireInside(offset, length, what);
  if (!isInside(offset, length, usable()))
    fail(what + ": there is memory behind the first " + std::to_string(usable()) + " bytes only, not behind " +
         std::to_string(length) + " from " + std::to_string(offset) + " on");
}

void CudaMemory::requireInside(size_t offset, size_t length, const std::string &what) const {
  if (!isInside(offset, length, size_)) {
    fail(what + ": bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " + std::to_string(length) +
         " lie outside a device memory of " + std::to_string(size_) + " bytes");
  }
}

PinnedMemory::PinnedMemory(std::shared_ptr<CudaDevice> device, size_t bytes)
    : device_(std::move(device)), size_(checkedBytes(bytes, "pinned memory")) {
  void *data = nullptr;
  device_->use().cuMemHostAlloc(&data, size_, 0);
  data_ = static_cast<uint8_t *>(data);
}

PinnedMemory::~PinnedMemory() { device_->useQuietly().cuMemFreeHost.raw(data_); }

CudaEvent::CudaEvent(std::shared_ptr<CudaDevice> device, bool isTimed) : device_(std::move(device)) {
  device_->use().cuEventCreate(&event_, isTimed ? CU_EVENT_TIMED : CU_EVENT_UNTIMED);
}

CudaEvent::~CudaEvent() { device_->useQuietly().cuEventDestroy.raw(event_); }

void CudaEvent::record(CuStream stream) const { device_->use().cuEventRecord(event_, stream); }

std::shared_ptr<PinnedPool> PinnedPool::of(const std::shared_ptr<CudaDevice> &device) {
  const std::lock_guard<std::mutex> lock(device->poolMutex);
  auto pool = device->pool.lock();
  if (!pool) device->pool = pool = std::make_shared<PinnedPool>(device);
  return pool;
}

std::shared_ptr<PinnedMemory> PinnedPool::take(const std::shared_ptr<PinnedPool> &pool, size_t bytes) {
  std::unique_ptr<PinnedMemory> found;
  {
    const std::lock_guard<std::mutex> lock(pool->mutex_);
    auto &spare = pool->spare_;
    auto best = spare.end();
    for (auto each = spare.begin(); each != spare.end(); ++each)
      if ((*each)->size() >= bytes && (best == spare.end() || (*each)->size() < (*best)->size())) best = each;
    if (best != spare.end()) {
      found = std::move(*best);
      spare.erase(best);
    }
  }
  if (!found) {
    // Sizes of programs differ by little: eight of them between two powers of two.
    size_t unit = 4096;
    while (unit * 8 < bytes) unit *= 2;
    found = std::make_unique<PinnedMemory>(pool->device_, roundUp(bytes, unit));
  }
  return std::shared_ptr<PinnedMemory>(found.release(), [pool](PinnedMemory *taken) {
    std::unique_ptr<PinnedMemory> own(taken);
    const std::lock_guard<std::mutex> lock(pool->mutex_);
    pool->spare_.push_back(std::move(own));
  });
}

void CudaEvent::wait() const { device_->use().cuEventSynchronize(event_); }

void CudaEvent::holdBack(CuStream stream) const { device_->use().cuStreamWaitEvent(stream, event_, 0); }

double CudaEvent::millisecondsSince(const CudaEvent &earlier) const {
  float milliseconds = 0;
  device_->use().cuEventElapsedTime(&milliseconds, earlier.event_, event_);
  return milliseconds;
}

CudaStream::CudaStream(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {
  device_->use().cuStreamCreate(&stream_, CU_STREAM_ON_ITS_OWN);
}

CudaStream::~CudaStream() { device_->useQuietly().cuStreamDestroy.raw(stream_); }

}  // namespace tw
