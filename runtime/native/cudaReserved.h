// Addresses of a device, with memory behind the first of them.
#ifndef TILEWRIGHT_CUDA_RESERVED_H
#define TILEWRIGHT_CUDA_RESERVED_H
#include <atomic>

#include "cudaDevice.h"

namespace tw {

/**
 * A range of addresses that keeps its place while memory behind it comes and goes, in pieces of the driver's
 * granularity. Where the driver cannot do that, the most that will be wanted is allocated at once.
 */
class CudaReserved {
 public:
  /** Addresses for `bytes`, of which memory will be wanted behind the first `most`. Throws where there is none. */
  CudaReserved(std::shared_ptr<CudaDevice> device, size_t bytes, size_t most);
  /** Waits for no work: the last owner lets go when nothing runs any more. */
  ~CudaReserved();
  CudaReserved(const CudaReserved &) = delete;
  CudaReserved &operator=(const CudaReserved &) = delete;

  CuAddress address() const { return address_; }
  /** Bytes from the first on that there is memory behind. */
  size_t usable() const;
  /**
   * Puts memory behind the first `bytes`, in whole pieces, and sets what is new to zero. Less than was asked where the
   * device has no more; returns usable(). One call of map or unmap at a time.
   */
  size_t map(size_t bytes);
  /** Takes memory from behind all but the first `bytes`, in whole pieces. No work may be using it. Returns usable(). */
  size_t unmap(size_t bytes);

 private:
  void zero(const CudaApi &api, size_t from, size_t bytes) const;
  size_t pieceOf(size_t bytes) const { return (bytes + granularity_ - 1) / granularity_ * granularity_; }
  std::shared_ptr<CudaDevice> device_;
  size_t bytes_;
  /** 0 where all was allocated at once. */
  size_t granularity_ = 0;
  CuAddress address_ = 0;
  /** In bytes. Threads of the addon write them, the JavaScript thread reads them. */
  std::atomic<size_t> mapped_{0};
};

}  // namespace tw
#endif
