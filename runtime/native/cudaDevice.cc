#include "cudaDevice.h"

namespace tw {

uint64_t Turnstile::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_++;
}

void Turnstile::wait(uint64_t number) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return front_ == number; });
}

void Turnstile::leave(uint64_t number) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    left_.insert(number);
    while (!left_.empty() && *left_.begin() == front_) {
      left_.erase(left_.begin());
      front_++;
    }
  }
  changed_.notify_all();
}

CudaDeviceInfo CudaDevice::describe(const CudaApi &api, int ordinal) {
  CuDeviceNumber number = 0;
  nameCurrentDevice(ordinal);
  api.cuDeviceGet(&number, ordinal);
  const auto attribute = [&](CuDeviceAttribute which) {
    int value = 0;
    api.cuDeviceGetAttribute(&value, which, number);
    return value;
  };
  CudaDeviceInfo info;
  info.ordinal = ordinal;
  char name[256] = {};
  api.cuDeviceGetName(name, sizeof name - 1, number);
  info.name = name;
  CuUuid uuid{};
  api.cuDeviceGetUuid(&uuid, number);
  static const char DIGITS[] = "0123456789abcdef";
  for (const unsigned char byte : uuid.bytes) {
    info.uuid += DIGITS[byte >> 4];
    info.uuid += DIGITS[byte & 15];
  }
  api.cuDeviceTotalMem(&info.totalBytes, number);
  info.capabilityMajor = attribute(CuDeviceAttribute::CapabilityMajor);
  info.capabilityMinor = attribute(CuDeviceAttribute::CapabilityMinor);
  info.multiprocessors = attribute(CuDeviceAttribute::Multiprocessors);
  info.l2Bytes = static_cast<size_t>(attribute(CuDeviceAttribute::L2Bytes));
  info.sharedBytesPerBlock = static_cast<size_t>(attribute(CuDeviceAttribute::SharedPerBlockOptIn));
  info.sharedBytesPerMultiprocessor = static_cast<size_t>(attribute(CuDeviceAttribute::SharedPerMultiprocessor));
  info.clockKHz = attribute(CuDeviceAttribute::ClockRate);
  info.canReserve = attribute(CuDeviceAttribute::MapsMemory) != 0 && api.cuMemAddressReserve && api.cuMemAddressFree &&
                    api.cuMemGetAllocationGranularity && api.cuMemCreate && api.cuMemRelease && api.cuMemMap &&
                    api.cuMemSetAccess && api.cuMemUnmap;
  return info;
}

std::shared_ptr<CudaDevice> CudaDevice::open(std::shared_ptr<const CudaApi> api, int ordinal) {
  int count = 0;
  api->cuDeviceGetCount(&count);
  if (ordinal >= count) {
    fail("There is no CUDA device " + std::to_string(ordinal) + ": the driver shows " + std::to_string(count));
  }
  CudaDeviceInfo info = describe(*api, ordinal);
  CuDeviceNumber number = 0;
  api->cuDeviceGet(&number, ordinal);
  return std::shared_ptr<CudaDevice>(new CudaDevice(std::move(api), number, std::move(info)));
}

CudaDevice::CudaDevice(std::shared_ptr<const CudaApi> api, CuDeviceNumber number, CudaDeviceInfo info)
    : api_(std::move(api)), number_(number), info_(std::move(info)) {
  api_->cuDevicePrimaryCtxRetain(&context_, number_);
  try {
    use().cuStreamCreate(&stream_, CU_STREAM_ON_ITS_OWN);
  } catch (...) {
    api_->cuDevicePrimaryCtxRelease.raw(number_);
    throw;
  }
}

CudaDevice::~CudaDevice() {
  const CudaApi &api = useQuietly();
  api.cuStreamDestroy.raw(stream_);
  api.cuCtxSetCurrent.raw(nullptr);
  api.cuDevicePrimaryCtxRelease.raw(number_);
}

const CudaApi &CudaDevice::use() const {
  nameCurrentDevice(info_.ordinal);
  api_->cuCtxSetCurrent(context_);
  return *api_;
}

const CudaApi &CudaDevice::useQuietly() const noexcept {
  api_->cuCtxSetCurrent.raw(context_);
  return *api_;
}

}  // namespace tw
