/** The C program around a contraction that is measured. */

/**
 * Runs threads over one launch in two passes. Returns the least processor time of `reps` runs in seconds, all threads
 * together.
 */
export const GEMM_DRIVER = `
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
/* The kernel saves the registers of tiles of a process that asked for it only: threads inherit what it got. */
__attribute__((constructor)) static void bench_tiles(void) {
  const long ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
  (void)syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
}
/* On huge pages, as the runtime keeps weights. */
static void *bench_memory(int64_t bytes) {
  const size_t huge = (size_t)2 << 20, size = ((size_t)bytes + huge) / huge * huge;
  void *memory = aligned_alloc(huge, size);
  madvise(memory, size, MADV_HUGEPAGE);
  return memory;
}
/* Not a contraction: each worker reads its share of the last buffer, the weights. */
static volatile int32_t bench_total;
static int64_t bench_bytes;
static void bench_read(const tw_launch *launch, int32_t worker, int32_t workers) {
  typedef int32_t words __attribute__((vector_size(32)));
  const int64_t count = bench_bytes / 32 / workers / 4 * 4;
  const words *data = (const words *)launch->buffers[launch->extents[0]] + worker * count;
  words a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
  for (int64_t i = 0; i < count; i += 4) { a ^= data[i]; b ^= data[i + 1]; c ^= data[i + 2]; d ^= data[i + 3]; }
  a ^= b ^ c ^ d;
  bench_total = a[0];
}
static double bench_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
typedef struct {
  tw_kernel kernel;
  tw_launch *launch;
  int32_t worker, workers, reps;
  pthread_barrier_t *barrier;
  double *seconds;
} bench_job;
static void *bench_thread(void *p) {
  bench_job *j = p;
  for (int32_t i = 0; i < j->reps; i++) {
    pthread_barrier_wait(j->barrier);
    if (j->worker == 0) memset(j->launch->next, 0, TW_COUNTERS * sizeof(int64_t));
    pthread_barrier_wait(j->barrier);
    const double start = bench_now();
    j->kernel(j->launch, j->worker, j->workers);
    j->seconds[i * j->workers + j->worker] = bench_now() - start;
  }
  return 0;
}
/* About normal, as activations behind a norm are: which codes of a row are large decides what bounding them costs. */
static float bench_normal(void) {
  static uint32_t state = 1;
  float sum = -6.0f;
  for (int i = 0; i < 12; i++) sum += (float)((state = state * 1664525u + 1013904223u) >> 8) / 16777216.0f;
  return sum;
}
/* Runs the kernel, or with none reads the buffer T. */
double bench_run(tw_kernel kernel, const int64_t *bytes, const int32_t *halves, int32_t buffers, int64_t T,
                 int64_t scratch, int32_t workers, int32_t reps) {
  if (!kernel) {
    kernel = bench_read;
    bench_bytes = bytes[T];
  }
  int64_t next[TW_COUNTERS] = { 0 };
  void *table[16];
  for (int b = 0; b < buffers; b++) {
    table[b] = bench_memory(bytes[b]);
    for (int64_t i = 0; i < bytes[b] / 4; i++) {
      /* Codes and scales of ordinary size; bf16 between 0.5 and 1.5. */
      if (halves[b] == 2) ((uint32_t *)table[b])[i] = 0x35353535u;
      else if (halves[b]) ((uint32_t *)table[b])[i] = 0x3f003f00u + (uint32_t)(i % 0x60) * 0x10001u;
      else ((float *)table[b])[i] = bench_normal();
    }
  }
  tw_launch launch = {
    .buffers = table,
    .extents = { T, T },
    .scratch = aligned_alloc(4096, (size_t)((scratch * workers + 4096) / 4096 * 4096)),
    .scratch_bytes = scratch,
    .next = next,
  };
  double *seconds = calloc((size_t)(reps * workers), 8), best = 1e30;
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, 0, (unsigned)workers);
  pthread_t threads[64];
  bench_job jobs[64];
  for (int w = 0; w < workers; w++) {
    jobs[w] = (bench_job){ kernel, &launch, w, workers, reps, &barrier, seconds };
    if (w > 0) pthread_create(&threads[w], 0, bench_thread, &jobs[w]);
  }
  bench_thread(&jobs[0]);
  for (int w = 1; w < workers; w++) pthread_join(threads[w], 0);
  for (int i = 0; i < reps; i++) {
    double sum = 0;
    for (int w = 0; w < workers; w++) sum += seconds[i * workers + w];
    if (sum < best) best = sum;
  }
  free(seconds);
  free(launch.scratch);
  for (int b = 0; b < buffers; b++) free(table[b]);
  return best;
}
/* Processor seconds of one multiply-add of 16 lanes in a loop of nothing else: as many chains as registers hold. */
#if defined(__AVX512F__)
#define BENCH_CHAINS 12
#define BENCH_STEP(a) tw_fma(a, x, y)
typedef tw_v bench_vector;
#elif defined(__FMA__)
#define BENCH_CHAINS 12
#define BENCH_STEP(a) (bench_vector)_mm256_fmadd_ps((__m256)a, (__m256)x, (__m256)y)
typedef float bench_vector __attribute__((vector_size(32)));
#else
#define BENCH_CHAINS 12
#define BENCH_STEP(a) a * x + y
typedef float bench_vector __attribute__((vector_size(16)));
#endif
volatile float bench_sink = 0.001f;
double bench_peak(void) {
  double best = 1e30;
  for (int r = 0; r < 40; r++) {
    bench_vector a[BENCH_CHAINS], total = { 0 };
    const bench_vector x = total + 0.999f, y = total + bench_sink;
    for (int i = 0; i < BENCH_CHAINS; i++) a[i] = total + (float)i;
    const double start = bench_now();
    for (int i = 0; i < 100000; i++) {
#pragma GCC unroll 12
      for (int j = 0; j < BENCH_CHAINS; j++) a[j] = BENCH_STEP(a[j]);
    }
    for (int i = 0; i < BENCH_CHAINS; i++) total += a[i];
    bench_sink = total[0] > 1e9f ? 0.002f : 0.001f;
    const double s = (bench_now() - start) / (1e5 * BENCH_CHAINS) * (64.0 / sizeof(bench_vector));
    if (s < best) best = s;
  }
  return best;
}
`;
