// Host memory, mostly mapped files, to a device at the rate of the bus, and the launches that read what arrived:
// several threads fill pinned buffers while the copy engine empties others and the device works on what it has.
#ifndef TILEWRIGHT_CUDA_UPLOAD_H
#define TILEWRIGHT_CUDA_UPLOAD_H
#include <atomic>

#include "cudaMemory.h"
#include "cudaProgram.h"
#include "encoded.h"
#include "memory.h"

namespace tw {

struct CudaUploadPart {
  /** Bytes, or a matrix that is copied as f32, by rows. */
  std::shared_ptr<Memory> source;
  std::shared_ptr<const Encoded> encoded;
  size_t sourceOffset = 0;
  std::shared_ptr<CudaMemory> target;
  size_t targetOffset = 0;
  size_t bytes = 0;
};

/** Copies, then launches first to end − 1 of a program. */
struct CudaUploadStep {
  std::vector<CudaUploadPart> parts;
  size_t firstLaunch = 0;
  size_t endLaunch = 0;
  /** Nothing of it is copied before the launches of so many first steps are over: they read what it overwrites. */
  size_t after = 0;
};

/** Seconds. Those of threads are means over the threads. */
struct CudaUploadTimes {
  double total = 0;
  /** Threads: reading sources into pinned buffers, and decoding. */
  double reading = 0;
  /** Threads: waiting for the bus to empty a buffer. */
  double bus = 0;
  /** Threads: waiting until launches that a copy comes after were at least enqueued. */
  double launches = 0;
  /** Device: all launches. */
  double device = 0;
};

class CudaUpload {
 public:
  /** `threads` threads with `buffers` pinned buffers of `bufferBytes` each. */
  CudaUpload(std::shared_ptr<CudaDevice> device, size_t bufferBytes, size_t threads, size_t buffers);
  const std::shared_ptr<CudaDevice> &device() const { return device_; }
  size_t copiedBytes() const { return copiedBytes_.load(); }
  std::shared_ptr<Turnstile::Place> takePlace() { return std::make_shared<Turnstile::Place>(turns_); }
  /**
   * Executes the steps and returns when everything is on the device and over. Launches are executed in order of steps
   * on the device's stream, each step's after its own copies; copies run ahead as far as `after` lets them. Only in its
   * place's turn, and with a program in the device's turn too; without one, steps have no launches. The first error of
   * a thread is rethrown once nothing is in flight any more.
   */
  CudaUploadTimes run(const std::vector<CudaUploadStep> &steps, const CudaProgram *program);

 private:
  class Run;
  /** A pinned buffer and the event after which it may be filled again. */
  struct Buffer {
    uint8_t *data = nullptr;
    std::unique_ptr<CudaEvent> emptied;
    bool isInFlight = false;
  };
  /** What one thread owns: buffers filled in turn, one while the others are emptied. */
  struct Lane {
    std::unique_ptr<CudaStream> stream;
    std::vector<Buffer> buffers;
    /** After the copies so far; launches wait for it. */
    std::unique_ptr<CudaEvent> filled;
    /** Has copies for which the device's stream does not wait yet. Guarded by the run's mutex. */
    bool isDirty = false;
    /** Steps after whose launches its stream's next copy is executed. */
    size_t awaited = 0;
    CudaUploadTimes times;
  };
  std::shared_ptr<CudaDevice> device_;
  size_t bufferBytes_;
  std::unique_ptr<PinnedMemory> pinned_;
  std::vector<Lane> lanes_;
  std::atomic<size_t> copiedBytes_{0};
  Turnstile turns_;
};

}  // namespace tw
#endif
