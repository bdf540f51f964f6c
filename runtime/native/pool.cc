#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace tw {
namespace {

constexpr int MAX_THREADS = 1024;
/** About 50 µs: a pause takes 40 cycles on older processors, 140 on newer ones. */
constexpr int SPINS = 1200;

/** More threads than processors: spinning would keep the one that is waited for from running. */
int spinsFor(int threads) { return threads <= cpu().cores ? SPINS : 0; }

void pinTo(int index) {
  const std::vector<int> &cpus = cpu().cpus;
  const int target = cpus[static_cast<size_t>(index) % cpus.size()];
  cpu_set_t *set = CPU_ALLOC(target + 1);
  if (set == nullptr) return;
  const size_t bytes = CPU_ALLOC_SIZE(target + 1);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(static_cast<size_t>(target), bytes, set);
  // A refusal only costs speed.
  (void)::pthread_setaffinity_np(::pthread_self(), bytes, set);
  CPU_FREE(set);
}

/**
 * Signals belong to the JavaScript process's own threads, but for those that a thread's own instructions cause:
 * blocked, they end the process unseen by whoever would report them.
 */
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT}) ::sigdelset(&all, fault);
    isBlocked_ = ::pthread_sigmask(SIG_SETMASK, &all, &before_) == 0;
  }
  ~SignalsBlocked() {
    if (isBlocked_) ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalsBlocked(const SignalsBlocked &) = delete;
  SignalsBlocked &operator=(const SignalsBlocked &) = delete;

 private:
  sigset_t before_{};
  bool isBlocked_ = false;
};

}  // namespace

void Barrier::sleep(uint32_t phase) noexcept {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (phase_.load(std::memory_order_seq_cst) == phase) {
    // Returns at once where the phase has moved on; interrupted or spurious returns are covered by the loop.
    ::syscall(SYS_futex, reinterpret_cast<uint32_t *>(&phase_), FUTEX_WAIT_PRIVATE, phase, nullptr, nullptr, 0);
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void Barrier::wakeAll() noexcept {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t *>(&phase_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

Pool::Pool(int threads, bool isPinned) : barrier_(threads, spinsFor(threads)) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is a plain 32-bit word");
  threads_.reserve(static_cast<size_t>(threads));
  const SignalsBlocked blocked;
  try {
    for (int i = 0; i < threads; i++) {
      threads_.emplace_back([this, i, isPinned] {
        (void)::pthread_setname_np(::pthread_self(), "tilewright");
        if (isPinned) pinTo(i);
        loop(i);
      });
    }
  } catch (...) {
    shutDown();
    throw;
  }
}

Pool::~Pool() { shutDown(); }

void Pool::shutDown() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    isClosing_ = true;
  }
  wake_.notify_all();
  for (std::thread &thread : threads_) thread.join();
  threads_.clear();
}

void Pool::loop(int worker) {
  uint64_t seen = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return isClosing_ || generation_ != seen; });
    if (generation_ == seen) return;
    seen = generation_;
    const std::function<void(int)> *body = body_;
    lock.unlock();
    std::exception_ptr error;
    try {
      (*body)(worker);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !error_) error_ = error;
    if (--remaining_ == 0) done_.notify_all();
  }
}

void Pool::run(const std::function<void(int)> &body) {
  const std::lock_guard<std::mutex> one(jobs_);
  std::unique_lock<std::mutex> lock(mutex_);
  body_ = &body;
  remaining_ = threads();
  error_ = nullptr;
  generation_++;
  wake_.notify_all();
  done_.wait(lock, [&] { return remaining_ == 0; });
  body_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

std::shared_ptr<void> Pool::lease(const std::shared_ptr<Pool> &pool) {
  bool expected = false;
  if (!pool->isLeased_.compare_exchange_strong(expected, true)) {
    fail("This pool is running another job: await that first");
  }
  return std::shared_ptr<void>(nullptr, [pool](void *) { pool->isLeased_.store(false); });
}

const napi_type_tag PoolWrap::TAG = {0x7469'6c65'7772'6974, 0x706f'6f6c'0000'0001};

PoolWrap::PoolWrap(const Napi::CallbackInfo &info) : ObjectWrap(info) {
  const auto threads = static_cast<int>(integerArg(info[0], "threads", 1, MAX_THREADS));
  const bool isPinned = !info[1].IsUndefined() && booleanArg(info[1], "isPinned");
  (void)cpu();  // asks for the tile registers before any thread exists
  pool_ = std::make_shared<Pool>(threads, isPinned);
  info.This().As<Napi::Object>().TypeTag(&TAG);
}

const std::shared_ptr<Pool> &PoolWrap::get() const {
  if (!pool_) fail("This pool was released already");
  return pool_;
}

Napi::Value PoolWrap::threads(const Napi::CallbackInfo &info) {
  return Napi::Number::New(info.Env(), get()->threads());
}

Napi::Value PoolWrap::isBusy(const Napi::CallbackInfo &info) { return Napi::Boolean::New(info.Env(), get()->isBusy()); }

void PoolWrap::stop(const Napi::CallbackInfo &) { get()->stop(); }

void PoolWrap::release(const Napi::CallbackInfo &) {
  if (pool_ && pool_->isBusy()) fail("This pool is running a job: await it before releasing the pool");
  pool_.reset();
}

Napi::Function initPool(Napi::Env env) {
  return PoolWrap::DefineClass(env, "Pool",
                               {PoolWrap::InstanceAccessor<&PoolWrap::threads>("threads"),
                                PoolWrap::InstanceAccessor<&PoolWrap::isBusy>("isBusy"),
                                PoolWrap::InstanceMethod<&PoolWrap::stop>("stop"),
                                PoolWrap::InstanceMethod<&PoolWrap::release>("release")});
}

}  // namespace tw
