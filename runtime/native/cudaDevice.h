// A device: its attributes, its primary context, its stream, and whose turn it is to use that.
#ifndef TILEWRIGHT_CUDA_DEVICE_H
#define TILEWRIGHT_CUDA_DEVICE_H
#include <condition_variable>
#include <mutex>
#include <set>

#include "cudaApi.h"

namespace tw {

struct CudaDeviceInfo {
  int ordinal = 0;
  std::string name;
  std::string uuid;
  int capabilityMajor = 0;
  int capabilityMinor = 0;
  int multiprocessors = 0;
  size_t totalBytes = 0;
  size_t l2Bytes = 0;
  size_t sharedBytesPerBlock = 0;
  size_t sharedBytesPerMultiprocessor = 0;
  int clockKHz = 0;
  /** Whether addresses can be reserved, and memory put behind them piece by piece. */
  bool canReserve = false;
};

/**
 * Lets threads through in the order in which places were taken: a place is taken on the JavaScript thread, where the
 * order of calls is the program's, and used on whichever thread does the work.
 */
class Turnstile {
 public:
  class Place {
   public:
    explicit Place(Turnstile &owner) : owner_(owner), number_(owner.take()) {}
    ~Place() { leave(); }
    Place(const Place &) = delete;
    Place &operator=(const Place &) = delete;
    /** Blocks until all places taken before are left. */
    void wait() { owner_.wait(number_); }
    /** Lets the next one in. The destructor does it too, so that a job that never ran blocks nobody. */
    void leave() {
      if (!isLeft_) owner_.leave(number_);
      isLeft_ = true;
    }

   private:
    Turnstile &owner_;
    uint64_t number_;
    bool isLeft_ = false;
  };

 private:
  uint64_t take();
  void wait(uint64_t number);
  void leave(uint64_t number);
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t last_ = 0;
  uint64_t front_ = 0;
  std::set<uint64_t> left_;  // numbers behind the front that will not come any more
};

class CudaDevice {
 public:
  static std::shared_ptr<CudaDevice> open(std::shared_ptr<const CudaApi> api, int ordinal);
  ~CudaDevice();
  CudaDevice(const CudaDevice &) = delete;
  CudaDevice &operator=(const CudaDevice &) = delete;

  static CudaDeviceInfo describe(const CudaApi &api, int ordinal);
  /** The driver's functions, after making the context current on this thread: the way to every call. */
  const CudaApi &use() const;
  /** The same in destructors, which have nobody to tell. */
  const CudaApi &useQuietly() const noexcept;
  const CudaDeviceInfo &info() const { return info_; }
  CuStream stream() const { return stream_; }
  CuDeviceNumber number() const { return number_; }
  CuContext context() const { return context_; }
  /** What the programs of the device share (PinnedPool::of), while there are some. */
  std::mutex poolMutex;
  std::weak_ptr<class PinnedPool> pool;
  std::shared_ptr<Turnstile::Place> takePlace() { return std::make_shared<Turnstile::Place>(turns_); }
  /** Runs `body` when its turn has come. */
  template <typename Body>
  void inTurn(Body &&body) {
    Turnstile::Place place(turns_);
    place.wait();
    body(use());
  }

 private:
  CudaDevice(std::shared_ptr<const CudaApi> api, CuDeviceNumber number, CudaDeviceInfo info);
  std::shared_ptr<const CudaApi> api_;
  CuDeviceNumber number_;
  CudaDeviceInfo info_;
  CuContext context_ = nullptr;
  CuStream stream_ = nullptr;
  Turnstile turns_;
};

}  // namespace tw
#endif
