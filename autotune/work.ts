/**
 * The work of a kernel whatever its schedule: arithmetic and compulsory traffic. Rooflines, throughput figures and
 * `inspect` are based on it.
 */
import { extentIn, type Extents } from '../ir/extents.js';
import { keyDimOf, valueDimOf } from '../ir/attentionDims.js';
import {
  type AttentionKernel,
  type Kernel,
  type KernelModule,
  LOGPROB_BLOCK,
  loopDomains,
  type Output,
  partWidth,
} from '../ir/kernel.js';
import { mostSeen } from '../ir/mask.js';
import { kernelWrites, outputsOf, scaleBuffers } from '../ir/kernelAccess.js';
import type { Bucket } from '../ir/plan.js';
import { operands, readOf, type Scalar } from '../ir/scalar.js';
import { scanReads } from '../ir/scan.js';
import { tokensIn } from '../ir/scoring.js';
import { FRESH_KEYS, KEYS, NEW_TOKENS } from '../ir/stepping.js';
import { FORMATS } from '../ir/storage.js';
import { type Dim, DTYPE_BYTES, roundUp } from '../ir/types.js';
import { defined } from '../system/defined.js';

/** The size of one call, and the shape of its trees. */
export interface WorkSize {
  readonly extents: Extents;
  /** Tokens of the longest path. */
  readonly longest: number;
  /** Most new tokens of one path that stand next to each other, in calls of few new tokens a path. */
  readonly run?: number;
  /** Mean number of keys that a token attends to, itself included. Default: half of `longest`. */
  readonly averageDepth?: number;
  /**
   * The same for scored rows, which lie at the ends of their paths. Default: averageDepth if given, else three quarters
   * of `longest`.
   */
  readonly averageScoredDepth?: number;
}

export const sizeOf = ({ extents, longest, run }: Bucket): WorkSize => ({
  extents,
  longest,
  ...defined({ run }),
});

export interface KernelWork {
  /** Operations of contractions, a multiply-add counted as two. A model's FLOP/s are counted in these. */
  readonly flops: number;
  /** Operations of scalar programs and of softmax. They are elementwise and not part of `flops`. */
  readonly scalarOps: number;
  /** Bytes if every element is read once and written once. */
  readonly bytes: number;
}

const NOTHING: KernelWork = { flops: 0, scalarOps: 0, bytes: 0 };

/** Scalar operations per element of softmax: scale, mask, subtract, exp, two running sums. */
const SOFTMAX_OPS = 16;
/** Operations of a scan for each element of a state and token: what it forgets, sees, takes and tells. */
const SCAN_FLOPS = 7;

/** Scalar operations per token that may be drawn: two hashes, two logarithms, the running maximum. */
const DRAW_OPS = 64;
/** Times that logits are read to choose a token by its probability. */
const SAMPLE_PASSES = 8;

export const rowsOf = (kernel: Pick<Kernel, 'rows'>, size: WorkSize): number => extentIn(kernel.rows, size.extents);

/** Mean number of keys that a query of this kernel attends to, at most as many as its window has. */
export const depthOf = (kernel: Pick<AttentionKernel, 'queryRow' | 'mask'>, size: WorkSize): number =>
  Math.min(pathDepth(kernel, size), mostSeen(kernel.mask) ?? Infinity);

/** Mean length of the path of a query. Selected queries lie at the ends of their paths. */
function pathDepth({ queryRow, mask }: Pick<AttentionKernel, 'queryRow' | 'mask'>, size: WorkSize): number {
  if (mask.kind === 'path' && size.averageDepth === undefined) {
    const { length, fresh } = pathShape(size);
    return length - (fresh - 1) / 2;
  }
  const isPicked = queryRow !== undefined;
  const stated = isPicked ? (size.averageScoredDepth ?? size.averageDepth) : size.averageDepth;
  const typical = isPicked ? 0.75 * size.longest : (size.longest + 1) / 2;
  return Math.min(Math.max(1, stated ?? typical), tokensIn(size));
}

/** A module's declarations by name. Build once for many kernels. */
export class Declarations {
  private readonly module: KernelModule;
  private readonly bytesByName = new Map<string, (size: WorkSize) => number>();
  private readonly bufferBytesPerElement = new Map<string, number>();

  constructor(module: KernelModule) {
    this.module = module;
    for (const { name, dtype, rows, columns } of module.buffers) {
      const width = DTYPE_BYTES[dtype];
      this.bufferBytesPerElement.set(name, width);
      this.bytesByName.set(name, (size) => extent(rows, size) * extent(columns, size) * width);
    }
    for (const weight of module.weights) {
      const rows = weight.sources.reduce((sum, source) => sum + source.rows, 0);
      const format = FORMATS[weight.format];
      this.bufferBytesPerElement.set(weight.name, format.elementBits / 8);
      this.bytesByName.set(weight.name, () => format.bytes(rows, weight.k));
    }
  }

  /** Bytes of the whole buffer or weight. Throws if the module does not declare it. */
  bytes(name: string, size: WorkSize): number {
    const bytes = this.bytesByName.get(name);
    if (bytes === undefined) throw new Error(`The module declares no buffer and no weight '${name}'.`);
    return bytes(size);
  }

  elementBytes(name: string): number {
    const bytes = this.bufferBytesPerElement.get(name);
    if (bytes === undefined) throw new Error(`The module declares no buffer and no weight '${name}'.`);
    return bytes;
  }

  /** Columns of a buffer; 1 for a vector. */
  columns(name: string, size: WorkSize): number {
    const buffer = this.module.buffers.find((b) => b.name === name);
    return buffer === undefined ? 1 : extent(buffer.columns, size);
  }
}

const extent = (dim: Dim, size: WorkSize): number => extentIn(dim, size.extents);

/** Bytes that the loads of `outputs` touch for `rows` rows. Each distinct load counts once. */
function loadBytes(outputs: readonly Output[], rows: number, size: WorkSize, declarations: Declarations): number {
  const counted = new Set<string>();
  let bytes = 0;
  const visit = (s: Scalar): void => {
    operands(s).forEach(visit);
    const read = readOf(s);
    if (read === undefined) return;
    const { buffer, via } = read;
    const key = `${buffer} ${via ?? ''}`;
    if (counted.has(key)) return;
    counted.add(key);
    // A gather touches one row of the table per row of the domain, not the whole table.
    const perRow = declarations.columns(buffer, size) * declarations.elementBytes(buffer);
    bytes += Math.min(declarations.bytes(buffer, size), rows * perRow);
    if (via !== undefined) bytes += rows * 4;
  };
  outputs.forEach((output) => {
    visit(output.value);
  });
  return bytes;
}

/**
 * Floating-point operations of a kernel's contractions, a multiply-add counted as two: per row, and per pair of a query
 * and a key that it attends to.
 */
export function contractionFlops(kernel: Kernel): { readonly perRow: number; readonly perPair: number } {
  switch (kernel.anchor) {
    case 'gemm': {
      const columns = kernel.segments.reduce(
        (sum, s) => sum + s.columns * (s.pairing.kind === 'interleave' ? 2 : 1),
        0,
      );
      return { perRow: 2 * kernel.k * columns, perPair: 0 };
    }
    case 'logprob':
      return { perRow: 2 * kernel.k * kernel.vocab, perPair: 0 };
    case 'attention':
      return { perRow: 0, perPair: 2 * kernel.heads * (keyDimOf(kernel) + valueDimOf(kernel)) };
    case 'loop':
    case 'logprobReduce':
    case 'sample':
    case 'route':
    case 'sortByExpert':
      return { perRow: 0, perPair: 0 };
    case 'links':
      return { perRow: 0, perPair: 0 };
    case 'scan':
      return { perRow: SCAN_FLOPS * kernel.heads * kernel.keyDim * kernel.valueDim, perPair: 0 };
    case 'shrink':
      return { perRow: 2 * kernel.k * kernel.parts * kernel.rank, perPair: 0 };
    default:
      return kernel satisfies never;
  }
}

/** Bytes of keys or values that a kernel reads: all rows of the buffer, or those of its paths. */
function keyBytes({ mask }: AttentionKernel, name: string, size: WorkSize, declarations: Declarations): number {
  if (mask.kind !== 'path') return declarations.bytes(name, size);
  const { paths, length } = pathShape(size);
  return paths * length * declarations.columns(name, size) * declarations.elementBytes(name);
}

/** Bytes that a kernel writes: whole buffers, and of a state the rows that an index selects. */
function writtenBytes(kernel: Kernel, declarations: Declarations, size: WorkSize): number {
  const scattered = new Set(
    outputsOf(kernel).flatMap((output) => (output.kind === 'store' && output.via !== undefined ? [output.buffer] : [])),
  );
  const rows = rowsOf(kernel, size);
  return [...kernelWrites(kernel)].reduce(
    (sum, name) =>
      sum +
      (scattered.has(name)
        ? rows * (declarations.columns(name, size) * declarations.elementBytes(name) + 4)
        : declarations.bytes(name, size)),
    0,
  );
}

/**
 * Arithmetic and compulsory bytes of one launch. Attention counts pairs of a query and a key that it attends to. If the
 * depth of the batch's tokens is not given, trees are taken to be chains of `longest` tokens.
 */
export function kernelWork(kernel: Kernel, module: KernelModule | Declarations, size: WorkSize): KernelWork {
  const declarations = module instanceof Declarations ? module : new Declarations(module);
  const rows = rowsOf(kernel, size);
  const written = writtenBytes(kernel, declarations, size);
  const { perRow, perPair } = contractionFlops(kernel);
  switch (kernel.anchor) {
    case 'gemm': {
      let scalarOps = 0,
        bytes = written + declarations.bytes(kernel.a, size);
      for (const segment of kernel.segments) {
        scalarOps += rows * segment.columns * segment.outputs.reduce((sum, o) => sum + scalarCost(o.value), 0);
        bytes += declarations.bytes(segment.weight, size) + loadBytes(segment.outputs, rows, size, declarations);
      }
      const { finish = [] } = kernel;
      scalarOps += rows * (kernel.segments[0]?.columns ?? 0) * finish.reduce((sum, o) => sum + scalarCost(o.value), 0);
      bytes += loadBytes(finish, rows, size, declarations);
      return { flops: rows * perRow, scalarOps, bytes };
    }
    case 'attention': {
      const pairs = rows * depthOf(kernel, size);
      const tails = kernel.tail === undefined ? [] : [kernel.tail.k];
      const kept = new Set([kernel.k, kernel.v, ...scaleBuffers(kernel), ...tails]);
      const read = [...kept].reduce((sum, name) => sum + keyBytes(kernel, name, size, declarations), 0);
      const queries = rows * kernel.heads * keyDimOf(kernel) * declarations.elementBytes(kernel.q);
      const keys = tokensIn(size);
      const mask = kernel.mask.kind === 'bias' ? rows * keys * 4 : keys * 4;
      return {
        flops: pairs * perPair,
        scalarOps: SOFTMAX_OPS * pairs * kernel.heads,
        bytes: written + read + queries + mask,
      };
    }
    case 'logprob': {
      const perLogit = SOFTMAX_OPS + (kernel.draw === undefined ? 0 : DRAW_OPS);
      const scalarOps = rows * kernel.vocab * (perLogit + scalarCost(kernel.rowScale) / LOGPROB_BLOCK);
      return {
        flops: rows * perRow,
        scalarOps,
        bytes: written + declarations.bytes(kernel.a, size) + declarations.bytes(kernel.weight, size) + rows * 4,
      };
    }
    case 'logprobReduce': {
      const blocks = rows * Math.ceil(kernel.vocab / LOGPROB_BLOCK);
      const parts = blocks * partWidth(kernel);
      return { flops: 0, scalarOps: SOFTMAX_OPS * blocks, bytes: written + parts * 4 + rows * 4 };
    }
    case 'sample':
      return {
        flops: 0,
        scalarOps: rows * kernel.vocab * (SOFTMAX_OPS + DRAW_OPS),
        bytes: written + SAMPLE_PASSES * declarations.bytes(kernel.logits, size),
      };
    case 'route':
      return {
        flops: 0,
        scalarOps: rows * kernel.count * (SOFTMAX_OPS + kernel.chosen),
        bytes: written + declarations.bytes(kernel.logits, size),
      };
    case 'shrink':
      return {
        flops: 2 * rows * kernel.k * kernel.parts * kernel.rank,
        scalarOps: 0,
        bytes: written + declarations.bytes(kernel.a, size),
      };
    case 'links':
      return { flops: 0, scalarOps: 0, bytes: 2 * written };
    case 'scan':
      return {
        flops: 0,
        scalarOps: rows * SCAN_FLOPS * kernel.heads * kernel.keyDim * kernel.valueDim,
        bytes: written + scanReads(kernel).reduce((sum, name) => sum + declarations.bytes(name, size), 0),
      };
    case 'sortByExpert':
      return { flops: 0, scalarOps: 0, bytes: written + 2 * declarations.bytes(kernel.experts, size) };
    case 'loop': {
      const perRow = loopDomains(kernel).reduce((all, { columns, outputs }) => {
        const own = columns === kernel.columns ? [...outputs, ...(kernel.finish ?? [])] : outputs;
        const perElement = own.reduce((sum, o) => sum + 1 + scalarCost(o.value), 0);
        return all + extent(columns, size) * perElement;
      }, 0);
      return {
        flops: 0,
        scalarOps: rows * perRow,
        bytes: written + loadBytes(outputsOf(kernel), rows, size, declarations),
      };
    }
    default:
      return kernel satisfies never;
  }
}

export const addWork = (a: KernelWork, b: KernelWork): KernelWork => ({
  flops: a.flops + b.flops,
  scalarOps: a.scalarOps + b.scalarOps,
  bytes: a.bytes + b.bytes,
});

/** The total over all kernels of a micro-batch. `flops` is what throughput figures call the model's FLOPs. */
export function moduleWork(module: KernelModule, size: WorkSize): KernelWork {
  const declarations = new Declarations(module);
  return module.kernels.reduce((sum, kernel) => addWork(sum, kernelWork(kernel, declarations, size)), NOTHING);
}

/**
 * Elementwise cost of an operator. Divisions and functions are short polynomials. Leaves cost nothing: what they read
 * is counted in bytes. A sum over a segment also costs one addition per element, see scalarCost.
 */
const OP_COST: Readonly<Record<Scalar['op'], number>> = {
  const: 0,
  acc: 0,
  load: 0,
  rowSum: 0,
  segmentSum: 0,
  rowIndex: 0,
  columnIndex: 0,
  rotateHalf: 1,
  groupSum: 1,
  select: 1,
  neg: 1,
  not: 1,
  toF32: 1,
  roundBf16: 1,
  roundF20: 1,
  roundF24: 1,
  tailF24: 1,
  joinF24: 1,
  add: 1,
  sub: 1,
  mul: 1,
  max: 1,
  min: 1,
  le: 1,
  lt: 1,
  eq: 1,
  and: 1,
  or: 1,
  div: 4,
  floor: 4,
  sqrt: 6,
  rsqrt: 6,
  exp: 12,
  log: 12,
  sin: 20,
  cos: 20,
  tanh: 20,
  erf: 30,
};

/** Elementwise operations of one evaluation. Sums over a row's parts run once per row and are left out. */
export function scalarCost(s: Scalar): number {
  const inner = operands(s).reduce((sum, operand) => sum + scalarCost(operand), 0);
  return inner + OP_COST[s.op] + (s.op === 'segmentSum' ? s.parts : 0);
}

export interface PathShape {
  /** Keys of each path. */
  readonly length: number;
  /** New tokens at the end of each path, at least 1. */
  readonly fresh: number;
  readonly paths: number;
}

/**
 * Fewer new tokens than a path is long continue a path each, as decoding does, and so do those of a class with a `run`.
 * More of them are whole prompts. No tokens are no paths.
 */
export function pathShape({ extents, longest, run }: Bucket): PathShape {
  const tokens = extentIn(NEW_TOKENS, extents);
  if (tokens === 0) return { length: longest, fresh: 1, paths: 0 };
  if (tokens >= longest && run === undefined)
    return { length: longest, fresh: longest, paths: Math.ceil(tokens / longest) };
  return {
    length: Math.max(1, Math.min(longest, Math.floor(Math.min(FRESH_KEYS, extentIn(KEYS, extents)) / tokens))),
    fresh: 1,
    paths: tokens,
  };
}

/** Rows of a cache that lie next to each other, because they belong to one page. */
export const PAGE_ROWS = 16;

/** Rows of a cache that hold the paths, each in pages of its own. */
export const pathRows = ({ length, paths }: PathShape): number => paths * roundUp(length, PAGE_ROWS);

/** Of each new token: where its path begins in the list of keys, and its position. */
export function pathTokens(shape: PathShape, tokens: number): { begin: Int32Array; position: Int32Array } {
  const { length, fresh } = shape;
  return {
    begin: Int32Array.from({ length: tokens }, (_, t) => Math.floor(t / fresh) * length),
    position: Int32Array.from({ length: tokens }, (_, t) => length - fresh + (t % fresh)),
  };
}
