/** Attention of queries that lie side by side: prompts, trees and turns. A block has a tile of them. */
import type { TensorMapDecl } from '../../../ir/cuda.js';
import type { AttentionKernel } from '../../../ir/kernel.js';
import { type Mask, reachOfMask } from '../../../ir/mask.js';
import { maskBuffers, scaleBuffers } from '../../../ir/kernelAccess.js';
import { defined } from '../../../system/defined.js';
import type { CudaOperands } from '../text/operands.js';
import { BOUNDED_UNIT } from '../text/statements.js';
import type { ConfigFields, ConfigValue } from '../text/unit.js';
import { SLAB_BYTES, slabOf } from '../wgmma/instruction.js';
import {
  type AttentionCode,
  callUnit,
  literal,
  membersOf,
  pathConfig,
  type PathSkeleton,
  pathUnit,
  scaleLayout,
  sinkOf,
} from './path.js';
import { areValuesKeys, MAX_TOKENS, WGMMA_KEYS } from './tile.js';

const RUNS: PathSkeleton = { header: 'attention/runs.cuh', entry: 'runs_attention', readsAhead: false };
const HOPPER: PathSkeleton = {
  header: 'attention/hopper.cuh',
  entry: 'hopper_attention',
  readsAhead: false,
  waits: true,
};

/** Prints a kernel whose blocks have tiles of queries. Throws if a batch may be longer than static memory allows. */
export function promptText(code: AttentionCode): { source: string; tensorMaps: readonly TensorMapDecl[] } {
  const { kernel, operands, schedule } = code;
  if (schedule.skeleton === 'simt') return { source: simtUnit(code), tensorMaps: [] };
  if (kernel.mask.kind !== 'path') return { source: treeUnit(code), tensorMaps: [] };
  if (schedule.skeleton === 'mma') return { source: pathUnit(code, RUNS), tensorMaps: [] };
  const tensorMaps = keyMaps(kernel, operands);
  return { source: pathUnit(code, { ...HOPPER, fields: hopperFields(kernel, operands), tensorMaps }), tensorMaps };
}

/** What lies behind the last key of a list is finite in states; elsewhere it may be anything. */
const hopperFields = (kernel: AttentionKernel, operands: CudaOperands): ConfigFields =>
  typeof operands.dimOf(kernel.k) === 'number' ? { isKept: true } : {};

/** Maps of keys and values. A box is a slab of a tile. */
const keyMaps = ({ k, v }: AttentionKernel, operands: CudaOperands): TensorMapDecl[] =>
  [k, v].map((name) => {
    const { index, stride, columns } = operands.get(name);
    if (typeof columns !== 'number') throw new Error(`The columns of '${name}' are not a number.`);
    return {
      parameter: index,
      dtype: 'bf16',
      rows: operands.dimOf(name),
      columns,
      stride,
      boxRows: WGMMA_KEYS,
      boxColumns: slabOf('bf16'),
      swizzle: SLAB_BYTES,
    };
  });

/** Queries of trees on tensor cores. */
function treeUnit(code: AttentionCode): string {
  const { kernel, keyRows, schedule } = code;
  if (keyRows.most > MAX_TOKENS) {
    throw new Error(
      `Kernel ${kernel.name} (${kernel.path}) cannot attend over ${keyRows.most} tokens in a batch, ` +
        `${MAX_TOKENS} at most: compile with a smaller --batch-tokens.`,
    );
  }
  const { mask, queryRow } = kernel;
  if (mask.kind !== 'column') throw new Error(`Kernel ${kernel.name} (${kernel.path}) is not over trees.`);
  return callUnit(code, {
    header: 'attention/trees.cuh',
    call: `tree_attention<config, ${Math.ceil(keyRows.most / schedule.keys)}>`,
    config: { type: 'PathConfig', fields: pathConfig(code, false) },
    operands: 'TreeOperands',
    elements: [kernel.q, kernel.out, ...sinkOf(kernel)],
    members: [
      ...membersOf(code, [
        ['q', kernel.q],
        ['k', kernel.k],
        ['v', kernel.v],
        ['end', mask.subtreeEnd],
        ['position', mask.position],
        ['query_row', queryRow],
        ['slopes', kernel.slopes],
        ['sinks', kernel.sink],
        ['out', kernel.out],
      ]),
      ['rows', kernel.rows],
      ['query_rows', keyRows.extent],
    ],
  });
}

/** The fields of SimtAttentionConfig (attention/simt.cuh) that have no default there. */
interface SimtAttentionConfig extends ConfigFields {
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly queries: number;
  readonly mask: ConfigValue;
  readonly qStride: number;
  readonly kStride: number;
  readonly vStride: number;
  readonly outStride: number;
  readonly scale: ConfigValue;
  readonly sharedBytes: number;
}

const MASKS = { column: 'Tree', path: 'Path', bias: 'Bias' } as const;

function simtConfig({ kernel, operands, schedule, tile }: AttentionCode): SimtAttentionConfig {
  const { heads, kvHeads, headDim, valueDim, tail, mask, cap, scale } = kernel;
  const [kScale, vScale] = scaleBuffers(kernel).map((name) => operands.get(name));
  const { window, chunk } = reachOfMask(mask);
  const stride = (name: string): number => operands.get(name).stride;
  return {
    heads,
    kvHeads,
    headDim,
    queries: schedule.queries,
    mask: { name: `Mask::${MASKS[mask.kind]}` },
    qStride: stride(kernel.q),
    kStride: stride(kernel.k),
    vStride: stride(kernel.v),
    outStride: stride(kernel.out),
    ...(mask.kind === 'bias' ? { biasStride: stride(mask.buffer) } : {}),
    ...(valueDim === undefined ? {} : { valueDim }),
    ...(tail === undefined ? {} : { tail: tail.headDim, qTailStride: stride(tail.q), kTailStride: stride(tail.k) }),
    ...(areValuesKeys(kernel) ? { keysAreValues: true } : {}),
    ...(kScale === undefined || vScale === undefined
      ? {}
      : { hasScales: true, kScales: scaleLayout(kScale), vScales: scaleLayout(vScale) }),
    scale: literal(scale),
    ...(cap === undefined ? {} : { cap: literal(cap), capFactor: literal(BOUNDED_UNIT / cap) }),
    ...defined({ window, chunk }),
    ...(kernel.slopes === undefined ? {} : { hasSlopes: true }),
    ...(kernel.slopeFactor === undefined ? {} : { slopeFactor: literal(kernel.slopeFactor) }),
    ...(kernel.sink === undefined ? {} : { hasSinks: true }),
    ...(kernel.queryRow === undefined ? {} : { hasQueryRow: true }),
    sharedBytes: tile.dynamicBytes,
  };
}

/** Members of operands on CUDA cores: the buffers of a mask, in the order of maskBuffers. */
const MASK_MEMBERS: Readonly<Record<Mask['kind'], readonly string[]>> = {
  column: ['end', 'position'],
  path: ['begin', 'position', 'key'],
  bias: ['bias'],
};

function simtUnit(code: AttentionCode): string {
  const { kernel, operands, keyRows } = code;
  const { mask, scales, queryRow, slopes } = kernel;
  return callUnit(code, {
    header: 'attention/simt.cuh',
    call: 'simt_attention<config>',
    config: { type: 'SimtAttentionConfig', fields: simtConfig(code) },
    operands: 'SimtOperands',
    elements: [kernel.q, kernel.k, kernel.out, ...sinkOf(kernel)],
    members: [
      ...membersOf(code, [
        ['q', kernel.q],
        ['k', kernel.k],
        ['v', kernel.v],
        ['q_tail', kernel.tail?.q],
        ['k_tail', kernel.tail?.k],
        ['k_scales', scales?.k],
        ['v_scales', scales?.v],
        ...maskBuffers(mask).map((buffer, i) => [MASK_MEMBERS[mask.kind][i]!, buffer] as const),
        ['slopes', slopes],
        ['query_row', queryRow],
        ['sinks', kernel.sink],
        ['out', kernel.out],
      ]),
      ['rows', kernel.rows],
      ['query_rows', operands.rowsOf(kernel.q).extent],
      ['key_rows', keyRows.extent],
    ],
  });
}
