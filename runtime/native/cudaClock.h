// When events of a device were reached, on the host's clock.
#ifndef TILEWRIGHT_CUDA_CLOCK_H
#define TILEWRIGHT_CUDA_CLOCK_H
#include "cudaMemory.h"

namespace tw {

/**
 * An event whose time is known on both clocks, recorded while the device is idle. Between two clocks that run at
 * different speeds the error grows by some tens of microseconds a second at most; the times of one device are as exact
 * among themselves as the driver's.
 */
class CudaClock {
 public:
  /** Takes the device's turn and waits for its stream. */
  explicit CudaClock(std::shared_ptr<CudaDevice> device);
  const std::shared_ptr<CudaDevice> &device() const { return device_; }
  /** Milliseconds since the epoch at which an event was reached; it must have been. */
  double at(const CudaEvent &event) const { return base_ + event.millisecondsSince(*mark_); }
  /** Most by which `at` was wrong when this was made. */
  double errorMilliseconds() const { return error_; }

 private:
  std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<CudaEvent> mark_;
  double base_ = 0;
  double error_ = 0;
};

}  // namespace tw
#endif
