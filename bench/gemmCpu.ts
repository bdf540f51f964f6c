/**
 * Contractions of the CPU code generator alone: GFLOP/s and the ratio to the peak of fused multiply-adds, and bytes of
 * weights per second and the ratio to the rate at which the same threads only read them, measured in the same run. Time
 * is processor time of each thread, so that a busy machine disturbs it little. `node dist/bench/gemmCpu.js --help`.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import koffi from 'koffi';
import {
  compilerFlags,
  defaultSchedule,
  emitKernel,
  emitTranslationUnit,
  includeFlags,
  isLegal,
} from '../codegen/cpu/index.js';
import type { KernelModule } from '../ir/kernel.js';
import { PACKED_COLUMNS, packedBytes } from '../ir/packing.js';
import { CPU_ISAS, type CpuGemmSchedule, type CpuIsa, rowStride } from '../ir/plan.js';
import { GROUP, isQuads, type QuadName } from '../ir/quads.js';
import { scoringBucket } from '../ir/scoring.js';
import { FORMATS } from '../ir/storage.js';
import { DTYPE_BYTES, roundUp } from '../ir/types.js';
import { type Command, InvalidArgumentError } from 'commander';
import { benchCommand, list, oneOf, repeated, runProgram, whole } from './command.js';
import { at } from '../system/at.js';

const SHAPES: readonly (readonly [number, number, number])[] = [
  [256, 2560, 2048],
  [1024, 2560, 2048],
  [512, 2048, 2048],
  [512, 11264, 2048],
  [512, 2048, 5632],
  [512, 2304, 768],
  [512, 4096, 768],
  [512, 768, 2048],
  [512, 768, 256],
  [512, 1408, 256],
  [512, 256, 704],
];

/** Kernel and reading in turn: both meet the machine as it is at the time. */
const ROUNDS = 5;

/** One contraction with the simplest epilogue: y = x·Wᵀ. */
function plainGemm(n: number, k: number, isa: CpuIsa, dtype: 'f32' | 'bf16' | QuadName): KernelModule {
  const isCodes = isQuads(dtype);
  const isAmx = isa === 'amx' && !isCodes;
  return {
    interface: { name: 'gemm', extents: [{ name: 'T' }, { name: 'R' }], inputs: [], outputs: [], takes: [], gives: [] },
    buffers: [
      { name: 'x', dtype: isAmx ? 'bf16' : 'f32', rows: 'T', columns: k, space: 'arena' },
      { name: 'y', dtype: isAmx ? 'bf16' : 'f32', rows: 'T', columns: n, space: 'arena' },
    ],
    weights: [
      {
        name: 'w',
        layout: isCodes ? 'quads' : isAmx ? 'vnni' : 'panels',
        format: isAmx ? 'bf16' : dtype,
        sources: [{ tensor: 'w', rows: n }],
        k,
        pairing: { kind: 'none' },
      },
    ],
    kernels: [
      {
        name: 'gemm',
        path: 'bench.gemm',
        anchor: 'gemm',
        rows: 'T',
        ops: [],
        k,
        a: 'x',
        ...(isCodes ? { rounding: { columns: dtype === 'i8' ? k : GROUP } } : {}),
        segments: [
          {
            weight: 'w',
            columns: n,
            pairing: { kind: 'none' },
            outputs: [{ kind: 'store', buffer: 'y', value: { op: 'acc', index: 0 } }],
          },
        ],
      },
    ],
  };
}

type Format = 'f32' | 'bf16' | QuadName;

interface GemmOptions {
  readonly shape: readonly (readonly number[])[];
  readonly schedule?: readonly (readonly number[])[];
  readonly isa: CpuIsa;
  readonly dtype: readonly Format[];
  readonly threads: number;
  readonly reps: number;
  readonly plain?: boolean;
}

/** `512,2048,2048`: so many positive numbers. */
const numbers = (count: number) => (given: string) => {
  const found = list(whole(1, 1 << 20))(given);
  if (found.length !== count) throw new InvalidArgumentError(`expected ${count} numbers`);
  return found;
};

function formatOf(given: string): Format {
  if (given === 'f32' || given === 'bf16' || isQuads(given)) return given;
  throw new InvalidArgumentError('expected f32, bf16, i8 or a GGUF format, such as q8_0');
}

const gemmCommand = (): Command =>
  benchCommand('bench:gemm', 'Rates of the CPU code generator on contractions alone.')
    .option('--shape <m,n,k>', 'rows, columns and depth; may be repeated', repeated(numbers(3)), SHAPES)
    .option('--schedule <mr,nr,kc,mb,nb>', 'a schedule instead of the default; may be repeated', repeated(numbers(5)))
    .option('--isa <name>', CPU_ISAS.join(', '), oneOf(CPU_ISAS), 'avx512')
    .option('--dtype <list>', 'formats of the weights, in turn; of codes, rows are rounded as well', list(formatOf), [
      'f32',
    ])
    .option('--threads <n>', 'threads that compute', whole(1, 1024), 2)
    .option('--reps <n>', 'runs, of which the fastest counts', whole(1, 1 << 20), 5)
    .option('--plain', 'without VNNI');

function main({ shape: shapes, schedule, isa, dtype: formats, threads, reps, plain: isPlain }: GemmOptions): void {
  const facts = { isas: [isa], l1: 32768, l2: 1 << 20 };
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-bench-'));
  try {
    const runs = shapes.flatMap((shape) => formats.map((dtype) => ({ shape, dtype })));
    for (const {
      shape: [m = 0, n = 0, k = 0],
      dtype,
    } of runs) {
      const module = plainGemm(n, k, isa, dtype);
      const kernel = at(module.kernels, 0);
      const schedules: CpuGemmSchedule[] = schedule?.map((tile) => {
        const [mr = 0, nr = 0, kc = 0, mb = 0, nb = 0] = tile;
        return { kind: 'gemm', isa, mr, nr, kc, mb, nb };
      }) ?? [
        defaultSchedule(kernel, module, facts, scoringBucket({ tokens: m, rows: m, longest: m })) as CpuGemmSchedule,
      ];
      const legal = schedules.filter((schedule) => {
        const reason = isLegal(kernel, module, schedule, facts);
        if (reason !== true) console.log(`  illegal: ${reason}`);
        return reason === true;
      });
      const emitted = legal.map((schedule) => emitKernel(kernel, module, schedule, { T: m, R: m }));
      const [c, so] = [`${n}x${k}.c`, `${m}x${n}x${k}${dtype}.so`].map((name) => join(folder, name)) as [
        string,
        string,
      ];
      writeFileSync(c, emitTranslationUnit(emitted) + GEMM_DRIVER);
      const plain = isPlain === true ? ['-DTW_PLAIN_BYTES'] : [];
      execFileSync('cc', [
        ...compilerFlags([isa]),
        ...includeFlags(),
        ...plain,
        '-shared',
        '-fPIC',
        '-pthread',
        '-o',
        so,
        c,
        '-lm',
      ]);
      const library = koffi.load(so);
      const run = library.func(
        'double bench_run(void *kernel, int64_t *bytes, int32_t *halves, ' +
          'int32_t buffers, int64_t T, int64_t scratch, int32_t workers, int32_t reps)',
      );
      const peak = library.func('double bench_peak(void)');
      const { parameters } = at(emitted, 0);
      const bytes = parameters.map((name) => {
        const buffer = module.buffers.find((b) => b.name === name);
        if (buffer !== undefined)
          return (
            roundUp(m, 32) * rowStride(buffer, { T: m, R: m }, DTYPE_BYTES[buffer.dtype]) * DTYPE_BYTES[buffer.dtype]
          );
        return packedBytes(at(module.weights, 0), roundUp(n, PACKED_COLUMNS));
      });
      const dtypes = new Map([
        ...module.buffers.map(({ name, dtype }) => [name, dtype] as const),
        ...module.weights.map(({ name, format }) => [name, FORMATS[format].element] as const),
      ]);
      const kinds = new Map<string | undefined, number>([
        ['bf16', 1],
        ['u8', 2],
        ['i8', 2],
      ]);
      const halves = parameters.map((name) => kinds.get(dtypes.get(name)) ?? 0);
      const weight = parameters.indexOf('w');
      const measure = (kernel: unknown, extent: number, scratch: number): number =>
        Number(run(kernel, bytes, halves, bytes.length, extent, scratch, threads, reps));
      legal.forEach((s, i) => {
        let [kernelSeconds, readSeconds] = [Infinity, Infinity];
        for (let round = 0; round < ROUNDS; round++) {
          kernelSeconds = Math.min(
            kernelSeconds,
            measure(library.symbol(at(emitted, i).symbol), m, at(emitted, i).scratchBytes),
          );
          readSeconds = Math.min(readSeconds, measure(null, weight, 0));
        }
        const readRate = at(bytes, weight) / readSeconds / 1e9;
        const weightRate = at(bytes, weight) / kernelSeconds / 1e9;
        const rate = (2 * m * n * k) / kernelSeconds / 1e9;
        const best = 32 / Number(peak()) / 1e9;
        console.log(
          `${m}×${n}×${k}  ${dtype}  ${s.isa} ${s.mr}×${s.nr} kc ${s.kc} mb ${s.mb} nb ${s.nb}: ` +
            `${rate.toFixed(1)} GFLOP/s a thread, ${(rate / best).toFixed(3)} of the FMA peak ${best.toFixed(1)}; ` +
            `${weightRate.toFixed(1)} GB/s a thread, ` +
            `${(weightRate / readRate).toFixed(3)} of reading ${readRate.toFixed(1)}`,
        );
      });
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

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

await runProgram(import.meta.url, gemmCommand, main);
