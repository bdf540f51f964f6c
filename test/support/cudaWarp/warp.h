#ifndef TW_WARP_H
#define TW_WARP_H
/*
 * Generated CUDA as C++: the threads of a block are fibres, and what a warp or block does together waits for all of
 * them. Include it before the text of a kernel, whose `__shared__` is `static` and `extern __shared__` plain `extern`.
 *
 * The blocks of a cluster run together, other blocks one by one. Static shared memory is therefore shared by the blocks
 * of a cluster: kernels with clusters have none.
 *
 * Stricter than a GPU, to catch missing barriers: shared memory starts as NaN, asynchronous copies land as late as
 * allowed (or at once: tw_late_copies), a collective that not all lanes reach is a deadlock that ends the test, shared
 * memory of a block that has ended is NaN again, and fibres can be taken in either order.
 */
/* _longjmp between stacks is what this is about. */
#undef _FORTIFY_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <vector>
#include "races.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n)

/* Vector types of CUDA, and a tensor map. */
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(2) uchar2 { unsigned char x, y; };
struct alignas(4) uchar4 { unsigned char x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(64) tw_map { unsigned long long opaque[16]; };

/* A parameter of a kernel, whatever it points to. */
struct tw_pointer {
  void *at;
  template <class T> operator T *() const { return (T *)at; }
};

struct tw_dim3 { unsigned x, y, z; };
static tw_dim3 threadIdx, blockIdx, gridDim, blockDim;
/* Shared memory of the blocks of a cluster. */
constexpr unsigned TW_MOST_BLOCKS = 16, TW_SHARED_BYTES = 232448;
unsigned char tw_shared_of[TW_MOST_BLOCKS][TW_SHARED_BYTES] __attribute__((aligned(1024)));
/* Of the running fibre: its block's number in the cluster, and that block's shared memory. */
static unsigned tw_rank;
unsigned char *tw_shared = tw_shared_of[0];
/* Threads of a block, and the first block of the cluster. */
static unsigned tw_threads, tw_first_block;

/* A call of something that outlives it: like std::function, but it compiles faster and owns nothing. */
template <class> class tw_call;
template <class... A> class tw_call<void(A...)> {
  const void *of;
  void (*call)(const void *, A...);

public:
  template <class F> tw_call(const F &f) : of(&f), call([](const void *each, A... a) { (*(const F *)each)(a...); }) {}
  void operator()(A... a) const { call(of, a...); }
};

struct tw_copy { unsigned char *to; const void *from; int size, bytes; };
struct tw_fibre {
  ucontext_t context;
  jmp_buf place;
  std::vector<unsigned char> stack;
  bool is_begun, is_done;
  /* Groups of copies under way; the last is still open. */
  std::vector<std::vector<tw_copy>> copies;
  uint64_t argument, result;
  unsigned in[4], out[4];
  /* Whether the thread has arrived at the barrier of its cluster and not waited, and in which generation. */
  bool is_awaited;
  uint64_t awaited;
  const char *operation;
};
static std::vector<tw_fibre> tw_fibres;
static jmp_buf tw_scheduler;
static unsigned tw_current;
static int tw_late_copies = 1, tw_backwards = 0;
static uint64_t tw_progress;

struct tw_meeting { unsigned arrived = 0; uint64_t generation = 0; };
/* Ends the run with a complaint. */
static const char *tw_failure;
[[noreturn]] static void tw_fail(const char *why) {
  tw_failure = why;
  _longjmp(tw_scheduler, 1);
}

static tw_meeting tw_block_meetings[TW_MOST_BLOCKS], tw_cluster_meeting;
static std::vector<tw_meeting> tw_warp_meetings, tw_team_meetings;

static void tw_enter(unsigned i) {
  tw_current = tw_race_thread = i;
  tw_rank = i / tw_threads;
  tw_shared = tw_shared_of[tw_rank];
  threadIdx.x = i % tw_threads;
  blockIdx = { (tw_first_block + tw_rank) % gridDim.x, (tw_first_block + tw_rank) / gridDim.x, 0 };
}
static void tw_yield() {
  const volatile unsigned self = tw_current;
  if (_setjmp(tw_fibres[self].place) == 0) _longjmp(tw_scheduler, 1);
  tw_enter(self);
}
/* Waits until `count` threads are here; the last runs `then`. Orders their accesses to memory if it is a barrier. */
static void tw_meet(tw_meeting &m, unsigned count, tw_call<void()> then, bool is_barrier = true) {
  const uint64_t generation = m.generation;
  tw_progress++;
  if (is_barrier) tw_race_release(&m);
  if (++m.arrived == count) {
    then();
    m.arrived = 0;
    m.generation++;
    if (is_barrier) tw_race_close(&m);
  }
  while (m.generation == generation) tw_yield();
  if (is_barrier) tw_race_acquire(&m);
}
/* All lanes of a warp at one operation: `f` sees the first fibre of the warp. Only __syncwarp is a barrier. */
static void tw_warp(const char *operation, tw_call<void(tw_fibre *)> f, bool is_barrier = false) {
  const unsigned warp = tw_current / 32;
  tw_fibres[tw_current].operation = operation;
  tw_meet(tw_warp_meetings[warp], 32, [&] {
    tw_fibre *lanes = &tw_fibres[warp * 32];
    for (int i = 1; i < 32; i++)
      if (strcmp(lanes[i].operation, lanes[0].operation) != 0) tw_fail("lanes of a warp are at different operations");
    f(lanes);
  }, is_barrier);
}

static void __syncthreads() { tw_meet(tw_block_meetings[tw_rank], tw_threads, [] {}); }
/* Whether the condition holds for some thread of the block. */
static int tw_any[TW_MOST_BLOCKS][2];
static unsigned tw_turn[TW_MOST_BLOCKS];
static int __syncthreads_or(int condition) {
  const unsigned rank = tw_rank, now = tw_turn[rank] % 2;
  tw_any[rank][now] |= condition != 0;
  tw_meet(tw_block_meetings[rank], tw_threads, [rank] { tw_any[rank][++tw_turn[rank] % 2] = 0; });
  return tw_any[rank][now];
}
/* Waits for the other threads of one of the block's teams, `threads` each. */
static void tw_team_sync(int team, int threads) {
  tw_meet(tw_team_meetings[tw_rank * (tw_threads / (unsigned)threads) + (unsigned)team], (unsigned)threads, [] {});
}
/* A barrier of all threads of a cluster in two halves. A wait belongs to the thread's own last arrival. */
static void tw_cluster_arrive() {
  tw_fibre &self = tw_fibres[tw_current];
  if (self.is_awaited) tw_fail("a thread arrives twice at the barrier of its cluster");
  self.is_awaited = true;
  self.awaited = tw_cluster_meeting.generation;
  tw_progress++;
  tw_race_release(&tw_cluster_meeting);
  if (++tw_cluster_meeting.arrived < tw_fibres.size()) return;
  tw_cluster_meeting.arrived = 0;
  tw_cluster_meeting.generation++;
  tw_race_close(&tw_cluster_meeting);
}
static void tw_cluster_wait() {
  if (!tw_fibres[tw_current].is_awaited) tw_fail("a thread waits at the barrier of its cluster and has not arrived");
  while (tw_cluster_meeting.generation == tw_fibres[tw_current].awaited) tw_yield();
  tw_race_acquire(&tw_cluster_meeting);
  tw_fibres[tw_current].is_awaited = false;
}
/* One fibre runs at a time. Atomics race with other writes and not with each other: they are told as reads. */
template <class T, class F> static T tw_atomic(T *at, const F &f) {
  tw_race_read(at, sizeof *at);
  T old, next;
  memcpy(&old, at, sizeof old);
  next = f(old);
  memcpy(at, &next, sizeof next);
  return old;
}
template <class T> static T atomicAdd(T *at, T value) { return tw_atomic(at, [value](T x) { return (T)(x + value); }); }
template <class T> static T atomicMin(T *at, T value) {
  return tw_atomic(at, [value](T x) { return value < x ? value : x; });
}
template <class T> static T atomicMax(T *at, T value) {
  return tw_atomic(at, [value](T x) { return value > x ? value : x; });
}
static void __syncwarp() { tw_warp("syncwarp", [](tw_fibre *) {}, true); }

template <class T> static T tw_exchange(const char *operation, T value, tw_call<void(tw_fibre *)> f) {
  tw_fibre &self = tw_fibres[tw_current];
  self.argument = 0;
  memcpy(&self.argument, &value, sizeof value);
  tw_warp(operation, f);
  memcpy(&value, &self.result, sizeof value);
  return value;
}
template <class T> static T __shfl_xor_sync(unsigned, T value, int by) {
  return tw_exchange("shfl_xor", value, [by](tw_fibre *w) {
    for (int i = 0; i < 32; i++) w[i].result = w[i ^ by].argument;
  });
}
template <class T> static T __shfl_sync(unsigned, T value, int from, int width = 32) {
  /* Every lane may ask for another one, of the `width` lanes that it is one of. */
  const unsigned within = (unsigned)width - 1;
  tw_fibres[tw_current].in[0] = (tw_current % 32 & ~within) | ((unsigned)from & within);
  return tw_exchange("shfl", value, [](tw_fibre *w) {
    for (int i = 0; i < 32; i++) w[i].result = w[w[i].in[0]].argument;
  });
}
static int __reduce_min_sync(unsigned, int value) {
  return tw_exchange("reduce", value, [](tw_fibre *w) {
    int least = (int)w[0].argument;
    for (int i = 1; i < 32; i++) if ((int)w[i].argument < least) least = (int)w[i].argument;
    for (int i = 0; i < 32; i++) w[i].result = (uint32_t)least;
  });
}
static int __reduce_max_sync(unsigned mask, int value) { return ~__reduce_min_sync(mask, ~value); }
static unsigned __reduce_or_sync(unsigned, unsigned value) {
  return (unsigned)tw_exchange("reduce", (int)value, [](tw_fibre *w) {
    uint32_t all = 0;
    for (int i = 0; i < 32; i++) all |= (uint32_t)w[i].argument;
    for (int i = 0; i < 32; i++) w[i].result = all;
  });
}
template <class T> static T __shfl_up_sync(unsigned, T value, int by) {
  return tw_exchange("shfl_up", value, [by](tw_fibre *w) {
    for (int i = 0; i < 32; i++) w[i].result = w[i < by ? i : i - by].argument;
  });
}
static unsigned __ballot_sync(unsigned, int value) {
  return (unsigned)tw_exchange("ballot", (int)(value != 0), [](tw_fibre *w) {
    uint32_t all = 0;
    for (int i = 0; i < 32; i++) all |= (uint32_t)((int)w[i].argument != 0) << i;
    for (int i = 0; i < 32; i++) w[i].result = all;
  });
}
static unsigned __match_any_sync(unsigned, int value) {
  return (unsigned)tw_exchange("match", value, [](tw_fibre *w) {
    for (int i = 0; i < 32; i++) {
      uint32_t same = 0;
      for (int j = 0; j < 32; j++) same |= (uint32_t)((int)w[j].argument == (int)w[i].argument) << j;
      w[i].result = same;
    }
  });
}
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __ffs(int x) { return __builtin_ffs(x); }
static int __any_sync(unsigned, int value) {
  return tw_exchange("any", value != 0, [](tw_fibre *w) {
    bool any = false;
    for (int i = 0; i < 32; i++) any |= (int)w[i].argument != 0;
    for (int i = 0; i < 32; i++) w[i].result = any;
  });
}
static int __all_sync(unsigned mask, int value) { return !__any_sync(mask, !value); }

static float __int_as_float(int i) { float f; memcpy(&f, &i, 4); return f; }
static float __uint_as_float(unsigned i) { float f; memcpy(&f, &i, 4); return f; }
static unsigned __float_as_uint(float f) { unsigned i; memcpy(&i, &f, 4); return i; }

/* Four of the eight bytes of x (0 to 3) and y (4 to 7), as the digits of `which` say, the last digit first. */
static unsigned __byte_perm(unsigned x, unsigned y, unsigned which) {
  unsigned r = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned from = which >> (4 * i) & 7u;
    r |= ((from < 4 ? x >> (8 * from) : y >> (8 * (from - 4))) & 255u) << (8 * i);
  }
  return r;
}

/* Conversions of narrow types: to nearest even, NaN stays NaN. */
static unsigned short tw_emulated_to_bf16(float x) {
  const unsigned u = __float_as_uint(x);
  return (unsigned short)((x == x ? u + 0x7fffu + ((u >> 16) & 1u) : u | 0x400000u) >> 16);
}
static float tw_emulated_from_bf16(unsigned short h) { return __uint_as_float((unsigned)h << 16); }
static float tw_emulated_from_f16(unsigned short h) {
  const unsigned sign = (unsigned)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 1023u;
  if (exponent == 0) return __uint_as_float(sign | __float_as_uint((float)fraction * 5.9604644775390625e-8f));
  return __uint_as_float(sign | (exponent == 31u ? 0x7f800000u : (exponent + 112u) << 23) | (fraction << 13));
}
static unsigned short tw_emulated_to_f16(float x) {
  const unsigned u = __float_as_uint(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return (unsigned short)(sign | 0x7e00u);
  if (a >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
  /* The last bit of ½ + |x| weighs 2^-24, the quantum of binary16 subnormals. */
  if (a < 0x38800000u) return (unsigned short)(sign | (__float_as_uint(__uint_as_float(a) + 0.5f) - 0x3f000000u));
  return (unsigned short)(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
}
static unsigned tw_emulated_to_e4m3(float x) {
  const unsigned u = __float_as_uint(x), sign = (u >> 24) & 0x80u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return 0x7fu;
  if (a >= 0x43e00000u) return sign | 0x7eu;
  /* The last bit of 2^14 + |x| weighs 2^-9, the quantum of subnormals. */
  if (a < 0x3c800000u) return sign | (__float_as_uint(__uint_as_float(a) + 16384.0f) - 0x46800000u);
  return sign | ((a - 0x3c000000u + 0x7ffffu + ((a >> 20) & 1u)) >> 20);
}

static float tw_exp2(float x) { return exp2f(x); }
static float tw_log2(float x) { return log2f(x); }
static unsigned tw_shared_address(const void *p) { return (unsigned)((const unsigned char *)p - tw_shared); }
static unsigned char *tw_shared_at(unsigned at, unsigned bytes) {
  if (at % 16 != 0 || at + bytes > TW_SHARED_BYTES)
    tw_fail("an address of shared memory is out of range or no multiple of 16");
  return tw_shared + at;
}

static void tw_land(const tw_copy &c) {
  memset(c.to, 0, (size_t)c.size);
  memcpy(c.to, c.from, (size_t)c.bytes);
  tw_race_landed(c.to, (size_t)c.size);
  tw_race_write(c.to, (size_t)c.size);
}
static void tw_cp_async16(unsigned to, const void *from, int bytes) {
  if ((uintptr_t)from % 16 != 0) tw_fail("cp.async from an address that is no multiple of 16");
  const tw_copy copy = { tw_shared_at(to, 16), from, 16, bytes };
  tw_race_copy(copy.to, 16);
  if (!tw_late_copies) { tw_land(copy); return; }
  /* Until it lands nobody may count on what was there. */
  memset(copy.to, 0xff, 16);
  tw_fibres[tw_current].copies.back().push_back(copy);
}
static void tw_cp_async_commit() { tw_fibres[tw_current].copies.emplace_back(); }
template <int N> static void tw_cp_async_wait() {
  auto &groups = tw_fibres[tw_current].copies;
  /* The open group does not count. */
  while (groups.size() > N + 1) {
    for (const tw_copy &c : groups.front()) tw_land(c);
    groups.erase(groups.begin());
  }
}

static void tw_ldmatrix(unsigned (&r)[4], unsigned at, bool is_turned) {
  tw_fibre &self = tw_fibres[tw_current];
  self.in[0] = at;
  tw_race_read(tw_shared_at(at, 16), 16);
  tw_warp("ldmatrix", [is_turned](tw_fibre *w) {
    for (int m = 0; m < 4; m++) {
      uint16_t x[8][8];
      for (int row = 0; row < 8; row++) memcpy(x[row], tw_shared_at(w[8 * m + row].in[0], 16), 16);
      for (int l = 0; l < 32; l++) {
        const int row = l / 4, column = l % 4 * 2;
        w[l].out[m] = is_turned ? x[column][row] | (unsigned)x[column + 1][row] << 16
                                : x[row][column] | (unsigned)x[row][column + 1] << 16;
      }
    }
  });
  memcpy(r, self.out, sizeof r);
}
static void tw_ldmatrix_x4(unsigned (&r)[4], unsigned at) { tw_ldmatrix(r, at, false); }
static void tw_ldmatrix_x4_trans(unsigned (&r)[4], unsigned at) { tw_ldmatrix(r, at, true); }

struct tw_mma_lane { const float *d; unsigned a[4], b[2]; float out[4]; };
static tw_mma_lane tw_mma_lanes[1024 * TW_MOST_BLOCKS];
static void tw_mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, float (*value)(uint16_t)) {
  tw_mma_lane &self = tw_mma_lanes[tw_current];
  self = { d, { a[0], a[1], a[2], a[3] }, { b0, b1 }, {} };
  const unsigned first = tw_current / 32 * 32;
  tw_warp("mma", [first, value](tw_fibre *) {
    float A[16][16], B[16][8];
    for (int l = 0; l < 32; l++) {
      const tw_mma_lane &lane = tw_mma_lanes[first + l];
      const int g = l / 4, t = l % 4;
      for (int i = 0; i < 4; i++) {
        for (int h = 0; h < 2; h++) A[g + i % 2 * 8][t * 2 + h + i / 2 * 8] = value((uint16_t)(lane.a[i] >> 16 * h));
      }
      for (int i = 0; i < 2; i++)
        for (int h = 0; h < 2; h++) B[t * 2 + h + i * 8][g] = value((uint16_t)(lane.b[i] >> 16 * h));
    }
    for (int l = 0; l < 32; l++) {
      tw_mma_lane &lane = tw_mma_lanes[first + l];
      const int g = l / 4, t = l % 4;
      for (int i = 0; i < 4; i++) {
        double sum = 0;
        for (int k = 0; k < 16; k++) sum += (double)A[g + i / 2 * 8][k] * B[k][t * 2 + i % 2];
        lane.out[i] = (float)(lane.d[i] + sum);
      }
    }
  });
  memcpy(d, self.out, sizeof d);
}

static void tw_mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  tw_mma(d, a, b0, b1, tw_emulated_from_bf16);
}
static void tw_mma_f16(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  tw_mma(d, a, b0, b1, tw_emulated_from_f16);
}

static const tw_call<void()> *tw_kernel;
static void tw_begin() {
  (*tw_kernel)();
  if (tw_fibres[tw_current].is_awaited) tw_fail("a thread has arrived at the barrier of its cluster and ends");
  tw_fibres[tw_current].is_done = true;
  bool is_last = true;
  for (unsigned i = 0; i < tw_threads; i++) is_last &= tw_fibres[tw_rank * tw_threads + i].is_done;
  if (is_last) memset(tw_shared, 0xff, TW_SHARED_BYTES);
  tw_progress++;
  _longjmp(tw_scheduler, 1);
}
/* Runs a fibre until it waits or ends. Contexts only begin a fibre: _longjmp does not ask the kernel for signal masks.
 */
__attribute__((noinline)) static void tw_resume(unsigned i) {
  tw_fibre &f = tw_fibres[i];
  tw_enter(i);
  if (_setjmp(tw_scheduler) != 0) return;
  if (f.is_begun) _longjmp(f.place, 1);
  f.is_begun = true;
  setcontext(&f.context);
}

/*
 * Runs every block of a grid, in clusters along x. Returns whether all threads came to their end: neither a deadlock
 * nor a bad address.
 */
static bool tw_run_grid(unsigned grid_x, unsigned grid_y, unsigned threads, tw_call<void()> kernel,
                        unsigned cluster = 1) {
  tw_kernel = &kernel;
  tw_failure = nullptr;
  gridDim = { grid_x, grid_y, 1 };
  blockDim = { threads, 1, 1 };
  tw_threads = threads;
  tw_fibres.resize(threads * cluster);
  if (cluster > TW_MOST_BLOCKS || grid_x % cluster != 0) {
    fprintf(stderr, "a grid of %u blocks is no whole number of clusters of %u\n", grid_x, cluster);
    return false;
  }
  for (tw_first_block = 0; tw_first_block < grid_x * grid_y; tw_first_block += cluster) {
    memset(tw_shared_of, 0xff, cluster * TW_SHARED_BYTES);
    tw_race_cluster(threads * cluster, tw_shared_of[0], cluster * TW_SHARED_BYTES);
    for (tw_meeting &meeting : tw_block_meetings) meeting = {};
    tw_cluster_meeting = {};
    memset(tw_any, 0, sizeof tw_any);
    tw_warp_meetings.assign(threads * cluster / 32, {});
    tw_team_meetings.assign(threads * cluster / 32, {});
    for (tw_fibre &f : tw_fibres) {
      f.stack.resize(1 << 16);
      f.is_begun = f.is_done = f.is_awaited = false;
      f.copies.assign(1, {});
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.data();
      f.context.uc_stack.ss_size = f.stack.size();
      f.context.uc_link = nullptr;
      makecontext(&f.context, tw_begin, 0);
    }
    for (unsigned left = threads * cluster; left > 0;) {
      const uint64_t before = tw_progress;
      left = 0;
      for (unsigned n = 0; n < tw_fibres.size(); n++) {
        const unsigned i = tw_backwards ? (unsigned)tw_fibres.size() - 1 - n : n;
        if (tw_fibres[i].is_done) continue;
        tw_resume(i);
        if (tw_failure != nullptr) {
          fprintf(stderr, "emulated block (%u, %u), thread %u: %s\n", blockIdx.x, blockIdx.y, threadIdx.x, tw_failure);
          return false;
        }
        if (!tw_fibres[i].is_done) left++;
      }
      if (left > 0 && tw_progress == before) return false;
    }
  }
  return true;
}
#endif
