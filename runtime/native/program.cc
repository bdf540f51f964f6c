#include "program.h"

#include <chrono>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace tw {
namespace {

using Clock = std::chrono::steady_clock;

/**
 * Denormal numbers are taken and written as zero while kernels run: the tails of exp would otherwise cost a
 * hundred cycles each. The thread's mode is put back for packing, which keeps them.
 */
class FlushDenormals {
 public:
#if defined(__SSE__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040u); }
  ~FlushDenormals() { _mm_setcsr(before_); }
#else
  FlushDenormals() = default;
#endif
  FlushDenormals(const FlushDenormals &) = delete;
  FlushDenormals &operator=(const FlushDenormals &) = delete;

 private:
#if defined(__SSE__)
  unsigned before_;
#endif
};

/** The counters from which workers take work, on cache lines of their own. */
struct alignas(64) WorkCounters {
  int64_t next[TW_COUNTERS] = {};
};

bool isBad32(uint32_t bits, bool allowsNegativeInfinity) {
  return (bits & 0x7f800000u) == 0x7f800000u && !(allowsNegativeInfinity && bits == 0xff800000u);
}

/** Index of the first element that is not finite, or `count`. */
size_t findBad(const uint8_t *data, size_t count, DType dtype, bool allowsNegativeInfinity) {
  for (size_t i = 0; i < count; i++) {
    if (dtype == DType::F32) {
      uint32_t bits;
      std::memcpy(&bits, data + 4 * i, 4);
      if (isBad32(bits, allowsNegativeInfinity)) return i;
    } else {
      uint16_t bits;
      std::memcpy(&bits, data + 2 * i, 2);
      const unsigned exponent = dtype == DType::BF16 ? 0x7f80u : 0x7c00u;
      const bool isNegativeInfinity = bits == (0x8000u | exponent);
      if ((bits & exponent) == exponent && !(allowsNegativeInfinity && isNegativeInfinity)) return i;
    }
  }
  return count;
}

}  // namespace

tw_launch Program::bind(const LaunchSpec &launch, const Counts &counts, int64_t *next) const {
  tw_launch bound{};
  bound.buffers = launch.buffers.data();
  std::copy(counts.values.begin(), counts.values.end(), bound.extents);
  bound.scratch = scratchBytes == 0 ? nullptr : reinterpret_cast<char *>(scratch.data());
  bound.scratch_bytes = static_cast<int64_t>(scratchBytes);
  bound.next = next;
  return bound;
}

bool Program::findNonFinite(size_t index, const Counts &counts, NonFinite &where) const {
  const LaunchSpec &launch = launches[index];
  for (size_t w = 0; w < launch.writes.size(); w++) {
    const Write &write = launch.writes[w];
    const size_t columns = write.columns.in(counts);
    const size_t count = write.rows.in(counts);
    for (size_t row = 0; row < count; row++) {
      const uint8_t *data = slots[write.slot].data() + row * write.stride * bytesOf(write.dtype);
      const size_t column = findBad(data, columns, write.dtype, write.allowsNegativeInfinity);
      if (column < columns) {
        where = {index, w, row, column};
        return true;
      }
    }
  }
  return false;
}

RunResult Program::run(const Counts &counts, RunOptions options) const {
  RunResult result;
  if (options.isTimed) result.launchNs.resize(launches.size());
  std::vector<WorkCounters> counters(launches.size());
  std::vector<tw_launch> bound;
  bound.reserve(launches.size());
  for (size_t i = 0; i < launches.size(); i++) bound.push_back(bind(launches[i], counts, counters[i].next));

  const int workers = pool->threads();
  bool isOver = false;  // written between the arrivals and the departures of a barrier: all see the same
  bool isStopped = false;
  Clock::time_point started;
  pool->run([&](int worker) {
    const FlushDenormals mode;
    Barrier &barrier = pool->barrier();
    barrier.wait([&] { started = Clock::now(); });
    for (size_t i = 0; i < launches.size() && !isOver; i++) {
      if (options.skipsAdapters && launches[i].isForAdapters) continue;
      launches[i].kernel(&bound[i], worker, workers);
      barrier.wait([&, i] {
        if (options.isTimed) {
          const auto now = Clock::now();
          result.launchNs[i] = std::chrono::duration<double, std::nano>(now - started).count();
          started = now;
        }
        if (options.isChecked && findNonFinite(i, counts, result.where)) {
          result.isFinite = false;
          isOver = true;
        }
        if (pool->isStopping()) isOver = isStopped = true;
      });
    }
  });
  if (isStopped) fail("Stopped before the micro-batch was finished");
  return result;
}

std::vector<double> Program::timeLaunch(size_t index, const Counts &counts, size_t repeats) const {
  std::vector<double> seconds(repeats);
  WorkCounters counters;
  const tw_launch bound = bind(launches[index], counts, counters.next);
  const tw_kernel kernel = launches[index].kernel;
  const int workers = pool->threads();
  bool isStopped = false;
  Clock::time_point started;
  pool->run([&](int worker) {
    const FlushDenormals mode;
    Barrier &barrier = pool->barrier();
    for (size_t i = 0; i <= repeats && !isStopped; i++) {
      barrier.wait([&] {
        counters = {};
        started = Clock::now();
      });
      kernel(&bound, worker, workers);
      barrier.wait([&, i] {
        if (i > 0) seconds[i - 1] = std::chrono::duration<double>(Clock::now() - started).count();
        if (pool->isStopping()) isStopped = true;
      });
    }
  });
  if (isStopped) fail("Stopped while timing a launch");
  return seconds;
}

}  // namespace tw
