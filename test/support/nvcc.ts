/** What NVIDIA's compiler makes of generated kernels, without a GPU: many of them in one translation unit. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { CudaArch, CudaKernelText } from '../../ir/cuda.js';
import { bodyOf, includesText } from './cudaWarp/units.js';

export const hasNvcc = spawnSync('nvcc', ['--version'], { stdio: 'ignore' }).status === 0;

export interface NvccReport {
  /** The assembler's messages about this kernel. */
  readonly log: string;
  readonly registers: number;
  /** Local memory of a thread, in bytes: of values without a register, however often they are stored and loaded. */
  readonly stackBytes: number;
  readonly spillStores: number;
  readonly spillLoads: number;
  /** Static shared memory, in bytes. */
  readonly staticBytes: number;
  /** See movesBeforeProducts. */
  readonly movesBeforeProducts: number;
}

/**
 * Compiles kernels for `arch`: their headers once, each kernel's own text in a namespace, because most of the compile
 * time of a small kernel goes into the headers of CUDA. Returns a report for each, in order. Throws with the compiler's
 * messages if it refuses a kernel or warns of it.
 */
export function compileByNvcc(
  kernels: readonly Pick<CudaKernelText, 'symbol' | 'source'>[],
  arch: CudaArch,
): NvccReport[] {
  // Two kernels of the same name remain two kernels.
  const texts = kernels.map(
    ({ symbol, source }, i) =>
      `namespace tw::of_${i} {\n${bodyOf(source).replaceAll(new RegExp(`\\b${symbol}\\b`, 'g'), `k_${i}`)}\n}`,
  );
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-nvcc-'));
  try {
    writeFileSync(join(folder, 'kernels.cu'), [includesText(kernels.map(({ source }) => source)), ...texts].join('\n'));
    const number = arch.slice(3);
    const flags = [
      '-cubin',
      `-gencode=arch=compute_${number},code=${arch}`,
      '--std=c++20',
      '-I',
      fileURLToPath(new URL('../../codegen/cuda', import.meta.url)),
      '-Werror=all-warnings',
      '-Xptxas',
      '-v',
    ];
    const { status, stdout, stderr } = spawnSync('nvcc', [...flags, '-o', 'kernels.cubin', 'kernels.cu'], {
      cwd: folder,
      encoding: 'utf8',
    });
    const log = `${stdout}${stderr}`;
    if (status !== 0) throw new Error(log);
    const cubin = readFileSync(join(folder, 'kernels.cubin'));
    const general = log.slice(0, log.indexOf('Compiling entry function'));
    return kernels.map(({ symbol }, i) => {
      const from = log.indexOf(`Compiling entry function 'k_${i}'`);
      if (from < 0) throw new Error(`nvcc reports nothing on ${symbol}:\n${log}`);
      const to = log.indexOf('Compiling entry function', from + 1);
      const own = log.slice(from, to < 0 ? undefined : to);
      const figure = (pattern: RegExp): number => Number(pattern.exec(own)?.[1] ?? NaN);
      return {
        log: general + own,
        registers: figure(/Used (\d+) registers/),
        stackBytes: figure(/(\d+) bytes stack frame/),
        spillStores: figure(/(\d+) bytes spill stores/),
        spillLoads: figure(/(\d+) bytes spill loads/),
        // Not mentioned where a kernel has none.
        staticBytes: Number(/(\d+) bytes smem/.exec(own)?.[1] ?? 0),
        movesBeforeProducts: movesBeforeProducts(cubin, `k_${i}`),
      };
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

// Looks into machine code of NVIDIA GPUs (ELF files of sm_90a): which instructions a kernel has, in order.

/** Instructions of 16 bytes; the low 12 bits name the operation. As cuobjdump prints them: HGMMA, R2UR. */
const [WGMMA, TO_UNIFORM] = [0x9f0, 0x2ca];
const INSTRUCTION_BYTES = 16;

/** The machine code of the kernel called `symbol`. Throws if the file has none. */
function codeOf(cubin: Buffer, symbol: string): Buffer {
  const [headers, count, names] = [
    Number(cubin.readBigUInt64LE(40)),
    cubin.readUInt16LE(60),
    cubin.readUInt16LE(62),
  ] as const;
  const section = (i: number): { name: number; offset: number; bytes: number } => ({
    name: cubin.readUInt32LE(headers + 64 * i),
    offset: Number(cubin.readBigUInt64LE(headers + 64 * i + 24)),
    bytes: Number(cubin.readBigUInt64LE(headers + 64 * i + 32)),
  });
  const table = section(names).offset;
  for (let i = 0; i < count; i++) {
    const { name, offset, bytes } = section(i);
    const from = table + name;
    if (cubin.toString('latin1', from, cubin.indexOf(0, from)) === `.text.${symbol}`)
      return cubin.subarray(offset, offset + bytes);
  }
  throw new Error(`There is no machine code of ${symbol}.`);
}

/**
 * Instructions wgmma that come right after moves to uniform registers, with no other wgmma between. They take their
 * operands' places from there, so a loop whose places are computed elsewhere waits for moves at each of them.
 */
export function movesBeforeProducts(cubin: Buffer, symbol: string): number {
  const code = codeOf(cubin, symbol);
  let [moved, count] = [false, 0];
  for (let at = 0; at < code.length; at += INSTRUCTION_BYTES) {
    const operation = code.readUInt16LE(at) & 0xfff;
    if (operation === TO_UNIFORM) moved = true;
    if (operation !== WGMMA) continue;
    if (moved) count++;
    moved = false;
  }
  return count;
}
