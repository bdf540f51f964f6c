/** Attention of queries that lie side by side: prompts, trees and turns. A block has a tile of them. */
import type { TensorMapDecl } from '../../../ir/cuda.js';
import type { AttentionKernel } from '../../../ir/kernel.js';
import { MAX_TOKENS, SIMT_WARPS, WGMMA_KEYS } from '../attentionTile.js';
import type { CudaOperands } from '../text/operands.js';
import { capFunctions, capText, floatLiteral, render } from '../text/statements.js';
import {
  barrierFunctions,
  descriptorWords,
  operandType,
  SLAB_BYTES,
  slabOf,
  stepOf,
  wgmmaOperands,
} from '../wgmma/instruction.js';
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
  const tensorMaps = skeleton === 'wgmma' ? keyMaps(kernel, operands) : [];
  const values = attentionValues(code, tensorMaps);
  const before = `${render('attentionWarp', {})}${
    skeleton === 'wgmma' ? hopperText(kernel.headDim, operands.get(kernel.q).dtype) : ''
  }${capFunctions(kernel.cap)}`;
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
  return { source: `${before}\n${tensorCoreText(skeleton === 'wgmma', isPath, all)}`, tensorMaps };
}

/** A kernel on tensor cores: over trees; of queries of paths, tile by tile. */
function tensorCoreText(isWgmma: boolean, isPath: boolean, values: object): string {
  if (!isPath) {
    const parts = { root: part('attentionRoot', values), ...tileParts({ ...values, slot: 'slot' }, 4) };
    return render('attentionMma', { ...values, ...parts });
  }
  if (!isWgmma) return render('attentionPathMma', { ...values, ...pathParts(values, 4, 3) });
  return render('attentionPathWgmma', {
    ...values,
    producer: part('attentionWgmmaProducer', { ...values, ...loadParts(values) }, 2),
    consumer: part('attentionWgmmaConsumer', { ...values, softmax: part('attentionWgmmaSoftmax', values, 1) }, 1),
  });
}

/** What the warps do that load keys and values for products of warpgroups. */
const loadParts = (values: object): Readonly<Record<string, string>> => ({
  ahead: part('attentionWgmmaAhead', values, 2),
  gather: part('attentionWgmmaGather', values, 1),
  lead: part('attentionWgmmaLead', values, 2),
});

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

/** Registers of a thread after setmaxnreg; 504 in total for the three warpgroups of a block. */
const REGISTERS = { producerRegisters: 56, consumerRegisters: 224 } as const;

/** What kernels of warpgroup products call. */
function hopperText(d: number, dtype: string): string {
  const values = wgmmaOperands(d);
  const first = values.accumulators;
  const slabBytes = WGMMA_KEYS * SLAB_BYTES;
  return render('attentionWgmma', {
    barriers: barrierFunctions(),
    product: render('wgmmaProduct', {
      ...wgmmaOperands(WGMMA_KEYS),
      ...stepOf(operandType(dtype)),
      mmaType: dtype,
      n: WGMMA_KEYS,
      multiply: 'tw_wgmma',
    }).trimEnd(),
    ...values,
    mmaType: dtype,
    columns: d,
    a0: first,
    a1: first + 1,
    a2: first + 2,
    a3: first + 3,
    b: first + 4,
    isAdded: first + 5,
    words: descriptorWords(slabBytes),
    slabBytes,
    ...REGISTERS,
  });
}
