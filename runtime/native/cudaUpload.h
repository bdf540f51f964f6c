// Host memory, mostly mapped files, to a device at the rate of the bus: several threads fill pinned buffers while the
// copy engine empties others.
#ifndef TILEWRIGHT_CUDA_UPLOAD_H
#define TILEWRIGHT_CUDA_UPLOAD_H
#include <atomic>

#include "cudaMemory.h"
#include "memory.h"

namespace tw {

struct CudaUploadPart {
  std::shared_ptr<Memory> source;
  size_t sourceOffset = 0;
  std::shared_ptr<CudaMemory> target;
  size_t targetOffset = 0;
  size_t bytes = 0;
};

class CudaUpload {
 public:
  CudaUpload(std::shared_ptr<CudaDevice> device, size_t stagingBytes, size_t threads);
  const std::shared_ptr<CudaDevice> &device() const { return device_; }
  size_t copiedBytes() const { return copiedBytes_.load(); }
  std::shared_ptr<Turnstile::Place> takePlace() { return std::make_shared<Turnstile::Place>(turns_); }
  /** Copies all parts and returns the seconds it took. Only in its place's turn. The first error of a thread is rethrown. */
  double copy(const std::vector<CudaUploadPart> &parts);

 private:
  /** A buffer and the event after which it may be filled again. */
  struct Staging {
    std::unique_ptr<PinnedMemory> memory;
    std::unique_ptr<CudaEvent> emptied;
    bool isInFlight = false;
  };
  /** What one thread owns: two buffers, so that one is filled while the other is emptied. */
  struct Lane {
    std::unique_ptr<CudaStream> stream;
    Staging staging[2];
  };
  struct Chunk {
    const uint8_t *source;
    CuAddress target;
    size_t bytes;
  };
  void drive(Lane &lane, const std::vector<Chunk> &chunks, std::atomic<size_t> &next);
  std::shared_ptr<CudaDevice> device_;
  size_t stagingBytes_;
  std::vector<Lane> lanes_;
  std::atomic<size_t> copiedBytes_{0};
  Turnstile turns_;
};

}  // namespace tw
#endif
