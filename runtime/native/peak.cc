// peak(pool, kind, seconds): the most this machine gives, measured in register loops and by reading memory. Rates of
// kernels are reported as shares of these.
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "memory.h"
#include "pool.h"
#if defined(__x86_64__)
#include <immintrin.h>
#if (defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 11)
#define TW_HAS_TILES 1
#endif
#endif

namespace tw {
namespace {

using Clock = std::chrono::steady_clock;

/** Work of one thread: does `rounds` rounds and returns a value that depends on all of them. */
using Loop = double (*)(size_t rounds);

constexpr int CHAINS = 16;  // independent accumulators: two units with four cycles of latency need eight

typedef float Vec4 __attribute__((vector_size(16)));

double portableLoop(size_t rounds) {
  Vec4 sums[8];
  for (int i = 0; i < 8; i++) sums[i] = Vec4{1, 1, 1, 1} * static_cast<float>(i + 1);
  const Vec4 factor{0.999f, 0.999f, 0.999f, 0.999f};
  const Vec4 term{0.001f, 0.001f, 0.001f, 0.001f};
  for (size_t r = 0; r < rounds; r++) {
    for (int i = 0; i < 8; i++) sums[i] = sums[i] * factor + term;
  }
  double total = 0;
  for (int i = 0; i < 8; i++) total += static_cast<double>(sums[i][0]);
  return total;
}
constexpr double PORTABLE_FLOPS = 8 * 4 * 2;

#if defined(__x86_64__)

__attribute__((target("avx2,fma"))) double avx2Loop(size_t rounds) {
  constexpr int chains = 12;  // of 16 registers
  __m256 sums[chains];
  for (int i = 0; i < chains; i++) sums[i] = _mm256_set1_ps(static_cast<float>(i + 1));
  const __m256 factor = _mm256_set1_ps(0.999f);
  const __m256 term = _mm256_set1_ps(0.001f);
  for (size_t r = 0; r < rounds; r++) {
    for (int i = 0; i < chains; i++) sums[i] = _mm256_fmadd_ps(sums[i], factor, term);
  }
  double total = 0;
  for (int i = 0; i < chains; i++) total += static_cast<double>(_mm256_cvtss_f32(sums[i]));
  return total;
}
constexpr double AVX2_FLOPS = 12 * 8 * 2;

__attribute__((target("avx512f"))) double avx512Loop(size_t rounds) {
  __m512 sums[CHAINS];
  for (int i = 0; i < CHAINS; i++) sums[i] = _mm512_set1_ps(static_cast<float>(i + 1));
  const __m512 factor = _mm512_set1_ps(0.999f);
  const __m512 term = _mm512_set1_ps(0.001f);
  for (size_t r = 0; r < rounds; r++) {
    for (int i = 0; i < CHAINS; i++) sums[i] = _mm512_fmadd_ps(sums[i], factor, term);
  }
  double total = 0;
  for (int i = 0; i < CHAINS; i++) total += static_cast<double>(_mm512_cvtss_f32(sums[i]));
  return total;
}
constexpr double AVX512_FLOPS = CHAINS * 16 * 2;

#ifdef TW_HAS_TILES
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t startRow = 0;
  uint8_t reserved[14] = {};
  uint16_t columnBytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64, "the layout that LDTILECFG reads");

/** 2×2 blocking: accumulators 0–3, left operands 4 and 5, right operands 6 and 7. */
__attribute__((target("amx-tile,amx-bf16,avx512f"))) double amxLoop(size_t rounds) {
  TileConfig config;
  for (int i = 0; i < 8; i++) {
    config.columnBytes[i] = 64;
    config.rows[i] = 16;
  }
  alignas(64) uint16_t ones[512];
  for (uint16_t &value : ones) value = 0x3f80;
  alignas(64) float sums[256];
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  for (size_t r = 0; r < rounds; r++) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, 64);
  _tile_release();
  return static_cast<double>(sums[0]);
}
constexpr double AMX_FLOPS = 4 * 16 * 16 * 32 * 2;
#endif
#endif

/** Best of several measurements: operations a second over all threads of the pool. */
double measureLoop(Pool &pool, Loop loop, double flopsPerRound, double seconds) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  size_t rounds = 1000;
  double best = 0;
  std::vector<double> sink(static_cast<size_t>(pool.threads()) * 8);
  for (;;) {
    Clock::time_point from, to;
    pool.run([&](int worker) {
      pool.barrier().wait([&] { from = Clock::now(); });
      sink[static_cast<size_t>(worker) * 8] = loop(rounds);
      pool.barrier().wait([&] { to = Clock::now(); });
    });
    const double elapsed = std::chrono::duration<double>(to - from).count();
    if (elapsed < 0.005) {
      rounds *= 2;
      continue;
    }
    best = std::max(best, flopsPerRound * static_cast<double>(rounds) * pool.threads() / elapsed);
    if (Clock::now() >= deadline) return best;
  }
}

#if defined(__x86_64__) && defined(__linux__)
__attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#endif
uint64_t readAll(const uint64_t *data, size_t count) {
  uint64_t sums[32] = {};
  for (size_t i = 0; i + 32 <= count; i += 32) {
    for (size_t j = 0; j < 32; j++) sums[j] += data[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

/**
 * Best of several passes over a buffer of which caches hold next to nothing: bytes a second over all threads. A
 * third-level cache that does not drop lines in the order of their use keeps a third of a buffer of four times its size
 * from pass to pass. A small machine has an eighth of its memory read.
 */
double measureRead(Pool &pool, double seconds) {
  const auto physical = static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t wanted = std::clamp<size_t>(32 * cpu().l3Bytes, size_t{256} << 20, size_t{1} << 30);
  const size_t bytes = std::max(std::min(wanted, physical / 8), size_t{64} << 20);
  const auto workers = static_cast<size_t>(pool.threads());
  const size_t words = bytes / 8 / workers / 32 * 32;
  const auto memory = Memory::allocate(words * workers * 8);
  auto *data = reinterpret_cast<uint64_t *>(memory->data());
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  double best = 0;
  std::vector<uint64_t> sink(workers * 8);
  // Written first: unwritten pages are all the same page of zeros, which every cache holds.
  pool.run([&](int worker) { std::fill_n(data + static_cast<size_t>(worker) * words, words, uint64_t{1}); });
  do {
    Clock::time_point from, to;
    pool.run([&](int worker) {
      const auto index = static_cast<size_t>(worker);
      pool.barrier().wait([&] { from = Clock::now(); });
      sink[index * 8] = readAll(data + index * words, words);
      pool.barrier().wait([&] { to = Clock::now(); });
    });
    const double elapsed = std::chrono::duration<double>(to - from).count();
    best = std::max(best, static_cast<double>(words * workers * 8) / elapsed);
  } while (Clock::now() < deadline);
  return best;
}

std::function<double()> measurement(const std::shared_ptr<Pool> &pool, const std::string &kind, double seconds) {
  const auto loop = [&](Loop body, double flops) -> std::function<double()> {
    return [=] { return measureLoop(*pool, body, flops, seconds); };
  };
  if (kind == "read") return [=] { return measureRead(*pool, seconds); };
  if (kind == "portable") return loop(portableLoop, PORTABLE_FLOPS);
#if defined(__x86_64__)
  if (kind == "avx2" && cpu().hasAvx2) return loop(avx2Loop, AVX2_FLOPS);
  if (kind == "avx512" && cpu().hasAvx512) return loop(avx512Loop, AVX512_FLOPS);
#ifdef TW_HAS_TILES
  if (kind == "amx" && cpu().hasAmx) return loop(amxLoop, AMX_FLOPS);
#endif
#endif
  fail("This processor, or the compiler of the addon, has no " + kind + " to measure");
}

}  // namespace

Napi::Value peak(const Napi::CallbackInfo &info) {
  const std::shared_ptr<Pool> pool = poolArg(info[0], "pool");
  const std::string kind = stringArg(info[1], "kind");
  const double seconds = numberArg(info[2], "seconds");
  if (!(seconds >= 0 && seconds <= 60)) fail("seconds must be from 0 to 60");
  const auto measure = measurement(pool, kind, seconds);
  auto lease = Pool::lease(pool);
  auto rate = std::make_shared<double>(0);
  return PromiseWorker::start(
      info.Env(), [=] { *rate = measure(); },
      [=](Napi::Env env) -> Napi::Value { return Napi::Number::New(env, *rate); }, std::move(lease));
}

}  // namespace tw
