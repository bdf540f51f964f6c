/** Attention of queries that lie side by side: prompts, trees and turns. A block has a tile of them. */
import type { TensorMapDecl } from '../../../ir/cuda.js';
import type { AttentionKernel } from '../../../ir/kernel.js';
import { MAX_TOKENS, SIMT_WARPS, WGMMA_KEYS } from '../attentionTile.js';
import type { CudaOperands } from '../text/operands.js';
import { capFunctions, capText, floatLiteral, render } from '../text/statements.js';
import { SLAB_BYTES, slabOf } from '../wgmma/instruction.js';
import { pathUnit, type PathSkeleton } from './path.js';
import type { ConfigFields } from '../unit.js';
import { type AttentionCode, attentionValues, part, pathParts, tensorCoreValues, tileParts } from './pieces.js';

/** Prints a kernel whose blocks have tiles of queries. Throws if a batch may be longer than static memory allows. */
export function promptText(code: AttentionCode): { source: string; tensorMaps: readonly TensorMapDecl[] } {
  const { kernel, operands, schedule, keyRows } = code;
  const { skeleton, queries } = schedule;
  const isPath = kernel.mask.kind === 'path';
  if (skeleton === 'mma' && !isPath && keyRows.most > MAX_TOKENS) {
    throw new Error(
      `Kernel ${kernel.name} (${kernel.path}) cannot attend over ${keyRows.most} tokens in a batch, ` +
        `${MAX_TOKENS} at most: compile with a smaller --batch-tokens.`,
    );
  }
  if (skeleton === 'wgmma') {
    const tensorMaps = keyMaps(kernel, operands);
    return { source: pathUnit(code, { ...HOPPER, fields: hopperFields(kernel, operands), tensorMaps }), tensorMaps };
  }
  const tensorMaps: readonly TensorMapDecl[] = [];
  const values = attentionValues(code, tensorMaps);
  const before = `${render('attentionWarp', {})}${capFunctions(kernel.cap)}`;
  if (skeleton === 'simt') {
    const body = render('attentionSimt', {
      ...values,
      // Queries are loaded as they are.
      dtype: operands.get(kernel.q).dtype,
      warpQueries: queries / SIMT_WARPS,
      scale: floatLiteral(kernel.scale),
      ...capText(kernel.cap),
    });
    return { source: `${before}\n${body}`, tensorMaps };
  }
  const all = { ...values, ...tensorCoreValues(code) };
  return { source: `${before}\n${tensorCoreText(isPath, all)}`, tensorMaps };
}

/** A kernel on tensor cores: over trees; of queries of paths, tile by tile. */
function tensorCoreText(isPath: boolean, values: object): string {
  if (!isPath) {
    const parts = { root: part('attentionRoot', values), ...tileParts({ ...values, slot: 'slot' }, 4) };
    return render('attentionMma', { ...values, ...parts });
  }
  return render('attentionPathMma', { ...values, ...pathParts(values, 4, 3) });
}

const HOPPER: PathSkeleton = {
  header: 'attention/hopper.cuh',
  entry: 'hopper_attention',
  readsAhead: false,
  waits: true,
};

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
