/**
 * Contractions of the CPU code generator alone: GFLOP/s and the ratio to the peak of fused multiply-adds, and bytes of
 * weights per second and the ratio to the rate at which the same threads only read them, measured in the same run. Time
 * is processor time of each thread, so that a busy machine disturbs it little.
 *
 *     node dist/bench/gemmCpu.js [--shape M,N,K]… [--schedule mr,nr,kc,mb,nb]… [--isa avx512]
 *     [--dtype f32,bf16,q8_0,i8] [--threads 2] [--reps 5] [--plain]
 *
 * --dtype: formats of the weights, in turn; of codes, rows are rounded as well. --plain: without VNNI.
 */
import { scoringBucket } from '../ir/scoring.js';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import koffi from 'koffi';
import { compilerFlags, defaultSchedule, emitKernel, emitTranslationUnit, isLegal } from '../codegen/cpu/index.js';
import type { KernelModule } from '../ir/kernel.js';
import { PACKED_COLUMNS, packedBytes } from '../ir/packing.js';
import type { CpuGemmSchedule, CpuIsa } from '../ir/plan.js';
import { CPU_ISAS, rowStride } from '../ir/plan.js';
import { GROUP, isQuads, type QuadName } from '../ir/quads.js';
import { FORMATS } from '../ir/storage.js';
import { DTYPE_BYTES, roundUp } from '../ir/types.js';
import { GEMM_DRIVER } from './gemmCpuDriver.js';

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

function numbers(text: string, count: number, what: string): number[] {
  const list = text.split(',').map(Number);
  if (list.length !== count || list.some((x) => !Number.isSafeInteger(x) || x < 1))
    throw new Error(`${what} takes ${count} positive numbers, not '${text}'.`);
  return list;
}

function main(): void {
  const { values } = parseArgs({
    options: {
      shape: { type: 'string', multiple: true },
      schedule: { type: 'string', multiple: true },
      isa: { type: 'string', default: 'avx512' },
      dtype: { type: 'string', default: 'f32' },
      threads: { type: 'string', default: '2' },
      reps: { type: 'string', default: '5' },
      plain: { type: 'boolean', default: false },
    },
  });
  const isa = CPU_ISAS.find((name) => name === values.isa);
  if (isa === undefined) throw new Error(`--isa is one of ${CPU_ISAS.join(', ')}.`);
  const formats: ('f32' | 'bf16' | QuadName)[] = values.dtype
    .split(',')
    .map((name) => (name === 'bf16' || isQuads(name) ? name : ('f32' as const)));
  const [threads, reps] = [Number(values.threads), Number(values.reps)];
  const shapes = values.shape?.map((text) => numbers(text, 3, '--shape')) ?? SHAPES;
  const facts = { isas: [isa], l1: 32768, l2: 1 << 20 };
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-bench-'));
  try {
    const runs = shapes.flatMap((shape) => formats.map((dtype) => ({ shape, dtype })));
    for (const {
      shape: [m = 0, n = 0, k = 0],
      dtype,
    } of runs) {
      const module = plainGemm(n, k, isa, dtype);
      const kernel = module.kernels[0]!;
      const schedules: CpuGemmSchedule[] = values.schedule?.map((text) => {
        const [mr = 0, nr = 0, kc = 0, mb = 0, nb = 0] = numbers(text, 5, '--schedule');
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
      const plain = values.plain ? ['-DTW_PLAIN_BYTES'] : [];
      execFileSync('cc', [...compilerFlags([isa]), ...plain, '-shared', '-fPIC', '-pthread', '-o', so, c, '-lm']);
      const library = koffi.load(so);
      const run = library.func(
        'double bench_run(void *kernel, int64_t *bytes, int32_t *halves, ' +
          'int32_t buffers, int64_t T, int64_t scratch, int32_t workers, int32_t reps)',
      );
      const peak = library.func('double bench_peak(void)');
      const bytes = emitted[0]!.parameters.map((name) => {
        const buffer = module.buffers.find((b) => b.name === name);
        if (buffer !== undefined)
          return (
            roundUp(m, 32) * rowStride(buffer, { T: m, R: m }, DTYPE_BYTES[buffer.dtype]) * DTYPE_BYTES[buffer.dtype]
          );
        return packedBytes(module.weights[0]!, roundUp(n, PACKED_COLUMNS));
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
      const halves = emitted[0]!.parameters.map((name) => kinds.get(dtypes.get(name)) ?? 0);
      const weight = emitted[0]!.parameters.indexOf('w');
      const measure = (kernel: unknown, extent: number, scratch: number): number =>
        Number(run(kernel, bytes, halves, bytes.length, extent, scratch, threads, reps));
      legal.forEach((s, i) => {
        let [kernelSeconds, readSeconds] = [Infinity, Infinity];
        for (let round = 0; round < ROUNDS; round++) {
          kernelSeconds = Math.min(
            kernelSeconds,
            measure(library.symbol(emitted[i]!.symbol), m, emitted[i]!.scratchBytes),
          );
          readSeconds = Math.min(readSeconds, measure(null, weight, 0));
        }
        const readRate = bytes[weight]! / readSeconds / 1e9;
        const weightRate = bytes[weight]! / kernelSeconds / 1e9;
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

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) main();
