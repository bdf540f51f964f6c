// Threads that walk a program together: long sleeps between jobs, short waits between launches.
#ifndef TILEWRIGHT_POOL_H
#define TILEWRIGHT_POOL_H
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "cpu.h"
#include "support.h"

namespace tw {

/**
 * A barrier for a fixed number of threads. A waiter spins for some tens of microseconds, the usual imbalance of two
 * workers on one launch, then sleeps in the kernel, so that other programs get the core.
 */
class Barrier {
 public:
  Barrier(int count, int spins) : count_(static_cast<uint32_t>(count)), spins_(spins) {}

  /** Returns once all have arrived. `last` runs on the last to arrive, before anyone leaves; it must not throw. */
  template <typename Last>
  void wait(Last &&last) noexcept {
    const uint32_t phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
      last();
      arrived_.store(0, std::memory_order_relaxed);
      // Sequentially consistent with the sleeper's increment: one of the two sees the other.
      phase_.fetch_add(1, std::memory_order_seq_cst);
      if (sleepers_.load(std::memory_order_seq_cst) != 0) wakeAll();
      return;
    }
    for (int i = 0; i < spins_; i++) {
      if (phase_.load(std::memory_order_acquire) != phase) return;
      spinPause();
    }
    sleep(phase);
  }

 private:
  void sleep(uint32_t phase) noexcept;
  void wakeAll() noexcept;
  const uint32_t count_;
  const int spins_;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  std::atomic<uint32_t> sleepers_{0};
};

/** A fixed set of threads, idle (asleep) unless a job runs. One job at a time. */
class Pool {
 public:
  /** Throws where a thread cannot be started; those already started are joined. */
  Pool(int threads, bool isPinned);
  ~Pool();
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  int threads() const { return static_cast<int>(threads_.size()); }
  Barrier &barrier() { return barrier_; }
  /**
   * Calls body(worker) on every thread and returns when all have. An exception of a worker is rethrown here, the
   * first one where there are several. A body that uses the barrier must not throw.
   */
  void run(const std::function<void(int)> &body);

  /** Marks the pool as taken from the JavaScript thread until the result is destroyed. Throws where it is taken. */
  static std::shared_ptr<void> lease(const std::shared_ptr<Pool> &pool);
  bool isBusy() const { return isLeased_.load(); }

  /** Makes a running program end at its next launch, and later ones not start: the process wants to exit. */
  void stop() { isStopping_.store(true); }
  bool isStopping() const { return isStopping_.load(std::memory_order_relaxed); }

 private:
  void loop(int worker);
  void shutDown();

  std::vector<std::thread> threads_;
  Barrier barrier_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const std::function<void(int)> *body_ = nullptr;
  uint64_t generation_ = 0;
  int remaining_ = 0;
  bool isClosing_ = false;
  std::exception_ptr error_;
  std::mutex jobs_;
  std::atomic<bool> isLeased_{false};
  std::atomic<bool> isStopping_{false};
};

class PoolWrap : public Napi::ObjectWrap<PoolWrap> {
 public:
  static constexpr const char *NAME = "Pool";
  static const napi_type_tag TAG;
  explicit PoolWrap(const Napi::CallbackInfo &info);
  const std::shared_ptr<Pool> &get() const;

 private:
  friend Napi::Function initPool(Napi::Env env);
  Napi::Value threads(const Napi::CallbackInfo &info);
  Napi::Value isBusy(const Napi::CallbackInfo &info);
  void stop(const Napi::CallbackInfo &info);
  void release(const Napi::CallbackInfo &info);
  std::shared_ptr<Pool> pool_;
};

inline std::shared_ptr<Pool> poolArg(const Napi::Value &value, const std::string &what) {
  return unwrap<PoolWrap>(value, what)->get();
}

}  // namespace tw
#endif
