#include "cudaReserved.h"

namespace tw {

CudaReserved::CudaReserved(std::shared_ptr<CudaDevice> device, size_t bytes, size_t most)
    : device_(std::move(device)), bytes_(bytes) {
  const CudaApi &api = device_->use();
  if (!device_->info().canReserve) {
    if (most == 0) most = 1;
    const CuResult result = api.cuMemAlloc.raw(&address_, most);
    if (result != CU_SUCCESS) api.fail(result, "cuMemAlloc_v2", std::to_string(most) + " bytes were asked for");
    mapped_ = most;
    try {
      zero(api, 0, most);
    } catch (...) {
      api.cuMemFree.raw(address_);
      throw;
    }
    return;
  }
  CuAllocationProperties properties;
  properties.location.device = device_->number();
  api.cuMemGetAllocationGranularity(&granularity_, &properties, 0);
  bytes_ = pieceOf(bytes);
  const CuResult result = api.cuMemAddressReserve.raw(&address_, bytes_, 0, 0, 0);
  if (result != CU_SUCCESS)
    api.fail(result, "cuMemAddressReserve", "addresses for " + std::to_string(bytes_) + " bytes were asked for");
}

CudaReserved::~CudaReserved() {
  const CudaApi &api = device_->useQuietly();
  if (granularity_ == 0) {
    api.cuMemFree.raw(address_);
    return;
  }
  for (size_t at = 0; at < mapped_; at += granularity_) api.cuMemUnmap.raw(address_ + at, granularity_);
  api.cuMemAddressFree.raw(address_, bytes_);
}

size_t CudaReserved::usable() const { return mapped_; }

size_t CudaReserved::map(size_t bytes) {
  const size_t before = mapped_;
  if (granularity_ == 0 || bytes <= before) return before;
  const CudaApi &api = device_->use();
  CuAllocationProperties properties;
  properties.location.device = device_->number();
  const size_t wanted = std::min(pieceOf(bytes), bytes_);
  size_t end = before;
  try {
    while (end < wanted) {
      CuAllocation piece = 0;
      const CuResult result = api.cuMemCreate.raw(&piece, granularity_, &properties, 0);
      if (result == CU_OUT_OF_MEMORY) break;
      if (result != CU_SUCCESS) api.fail(result, "cuMemCreate");
      const CuResult mapping = api.cuMemMap.raw(address_ + end, granularity_, 0, piece, 0);
      // The memory stays as long as it is mapped.
      api.cuMemRelease.raw(piece);
      if (mapping == CU_OUT_OF_MEMORY) break;
      if (mapping != CU_SUCCESS) api.fail(mapping, "cuMemMap");
      end += granularity_;
    }
    if (end == before) return before;
    CuAccess access;
    access.location.device = device_->number();
    const CuResult result = api.cuMemSetAccess.raw(address_ + before, end - before, &access, 1);
    if (result == CU_OUT_OF_MEMORY) {
      // The driver's own tables.
      for (size_t at = before; at < end; at += granularity_) api.cuMemUnmap.raw(address_ + at, granularity_);
      return before;
    }
    if (result != CU_SUCCESS) api.fail(result, "cuMemSetAccess");
    zero(api, before, end - before);
  } catch (...) {
    for (size_t at = before; at < end; at += granularity_) api.cuMemUnmap.raw(address_ + at, granularity_);
    throw;
  }
  mapped_ = end;
  return end;
}

size_t CudaReserved::unmap(size_t bytes) {
  const size_t wanted = granularity_ == 0 ? size_t{mapped_} : pieceOf(bytes);
  if (wanted >= mapped_) return mapped_;
  const CudaApi &api = device_->use();
  // From the end, so that what is mapped is one range whatever fails.
  while (mapped_ > wanted) {
    api.cuMemUnmap(address_ + mapped_ - granularity_, granularity_);
    mapped_ -= granularity_;
  }
  return mapped_;
}

void CudaReserved::zero(const CudaApi &api, size_t from, size_t bytes) const {
  // On the default stream, for which no other one waits: nobody knows of this memory yet.
  api.cuMemsetD8Async(address_ + from, 0, bytes, nullptr);
  api.cuStreamSynchronize(nullptr);
}

}  // namespace tw
