// Memory of a device, pinned memory of the host, events and streams. Each lives no longer than its device.
#ifndef TILEWRIGHT_CUDA_MEMORY_H
#define TILEWRIGHT_CUDA_MEMORY_H
#include "cudaReserved.h"

namespace tw {

/** Freed when the last owner lets go; the driver waits for work that uses it. */
class CudaMemory {
 public:
  CudaMemory(std::shared_ptr<CudaDevice> device, size_t bytes);
  /** Addresses for `bytes`, of which there will be memory behind the first `most`: as reserved() has it. */
  CudaMemory(std::shared_ptr<CudaDevice> device, size_t bytes, size_t most);
  ~CudaMemory();
  CudaMemory(const CudaMemory &) = delete;
  CudaMemory &operator=(const CudaMemory &) = delete;

  const std::shared_ptr<CudaDevice> &device() const { return device_; }
  CuAddress address() const { return address_; }
  size_t size() const { return size_; }
  void requireInside(size_t offset, size_t length, const std::string &what) const;
  /** The same of the bytes that there is memory behind. */
  void requireUsable(size_t offset, size_t length, const std::string &what) const;
  /** Bytes from the first on that there is memory behind. */
  size_t usable() const { return reserved_ ? std::min(size_, reserved_->usable()) : size_; }
  /** Throws where it was allocated. */
  CudaReserved &reserved() const;

 private:
  std::shared_ptr<CudaDevice> device_;
  size_t size_;
  CuAddress address_ = 0;
  std::unique_ptr<CudaReserved> reserved_;
};

/** Page-locked memory: copies from and to it are asynchronous. */
class PinnedMemory {
 public:
  PinnedMemory(std::shared_ptr<CudaDevice> device, size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory &) = delete;
  PinnedMemory &operator=(const PinnedMemory &) = delete;
  uint8_t *data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::shared_ptr<CudaDevice> device_;
  size_t size_;
  uint8_t *data_ = nullptr;
};

/**
 * Pinned memory that the programs of a device share: a call has it while it is in flight. Nearly all of it is room for
 * a list of keys, and few calls are in flight at a time, but a plan has dozens of programs.
 */
class PinnedPool {
 public:
  /** The pool of a device, which lives as long as somebody has it. */
  static std::shared_ptr<PinnedPool> of(const std::shared_ptr<CudaDevice> &device);
  explicit PinnedPool(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}
  /** At least so many bytes, whatever is in them; they are given back with the last copy of the pointer. */
  static std::shared_ptr<PinnedMemory> take(const std::shared_ptr<PinnedPool> &pool, size_t bytes);

 private:
  std::shared_ptr<CudaDevice> device_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<PinnedMemory>> spare_;
};

class CudaEvent {
 public:
  CudaEvent(std::shared_ptr<CudaDevice> device, bool isTimed);
  ~CudaEvent();
  CudaEvent(const CudaEvent &) = delete;
  CudaEvent &operator=(const CudaEvent &) = delete;
  const std::shared_ptr<CudaDevice> &device() const { return device_; }
  void record(CuStream stream) const;
  /** Sleeps until the event is reached. Throws what went wrong on the device before it. */
  void wait() const;
  /** Holds back what `stream` is given from now on until the event, as recorded last, is reached. Does not wait. */
  void holdBack(CuStream stream) const;
  /** Of two events that were reached. */
  double millisecondsSince(const CudaEvent &earlier) const;
  CuEvent handle() const { return event_; }

 private:
  std::shared_ptr<CudaDevice> device_;
  CuEvent event_ = nullptr;
};

/** A stream beside the device's own. */
class CudaStream {
 public:
  explicit CudaStream(std::shared_ptr<CudaDevice> device);
  ~CudaStream();
  CudaStream(const CudaStream &) = delete;
  CudaStream &operator=(const CudaStream &) = delete;
  CuStream get() const { return stream_; }

 private:
  std::shared_ptr<CudaDevice> device_;
  CuStream stream_ = nullptr;
};

/** A range of a device memory, checked once when it is made. */
struct CudaSlot {
  std::shared_ptr<CudaMemory> memory;
  size_t offset = 0;
  size_t bytes = 0;
  CuAddress address() const { return memory->address() + offset; }
};

}  // namespace tw
#endif
