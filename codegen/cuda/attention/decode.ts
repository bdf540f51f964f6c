/** Attention of queries that each have a path of their own, and of those that share tiles of keys. */
import type { AttentionKernel } from '../../../ir/kernel.js';
import type { CudaAttentionSchedule } from '../../../ir/cuda.js';
import { maskBuffers } from '../../../ir/kernelAccess.js';
import { decodeTeamBytes, MMA_ROWS, rowPieces, tileOf } from '../attentionTile.js';
import type { Operand } from '../text/operands.js';
import { capFunctions, render } from '../text/statements.js';
import { pathUnit, type PathSkeleton } from './path.js';
import { type AttentionCode, attentionValues, part, pathParts, tensorCoreValues } from './pieces.js';

/**
 * A kernel of one query of a path, by teams or by one warp; of a tile of queries whose paths begin alike, by one warp;
 * of queries of paths that share tiles of keys.
 */
type DecodeTemplate = 'attentionPathDecode' | 'attentionPathLone' | 'attentionPathShared' | 'attentionPathStems';

/** Whether decodeText prints a kernel under a schedule; otherwise promptText does. */
export function isDecodeText(kernel: AttentionKernel, schedule: CudaAttentionSchedule): boolean {
  const { isDecode, isLone } = tileOf(kernel, schedule);
  return isDecode || isLone || (kernel.mask.kind === 'path' && schedule.sharesTiles === true);
}

/** Prints a kernel for which isDecodeText holds. */
export function decodeText(code: AttentionCode): string {
  const { kernel, operands, schedule, tile } = code;
  const skeleton = skeletonOf(code);
  if (skeleton !== undefined) return pathUnit(code, skeleton);
  const values = {
    ...attentionValues(code, []),
    ...(tile.isDecode || tile.isLone
      ? decodeValues(
          kernel,
          schedule,
          [...maskBuffers(kernel.mask), ...(kernel.queryRow === undefined ? [] : [kernel.queryRow])].map((name) =>
            operands.get(name),
          ),
        )
      : {}),
    ...tensorCoreValues(code),
  };
  const template = decodeTemplate(code);
  const body = render(template, { ...values, ...partsOf(template, values) });
  return `${render('attentionWarp', {})}${capFunctions(kernel.cap)}\n${body}`;
}

const DECODE: PathSkeleton = { header: 'attention/decode.cuh', entry: 'decode_attention' };
const LONE: PathSkeleton = { header: 'attention/lone.cuh', entry: 'lone_attention' };

function skeletonOf({ schedule, tile: { isDecode, isLone } }: AttentionCode): PathSkeleton | undefined {
  if (isLone) return schedule.queries > 1 ? undefined : LONE;
  return isDecode ? DECODE : undefined;
}

function decodeTemplate({ schedule, tile: { isDecode, isLone } }: AttentionCode): DecodeTemplate {
  if (isLone) return schedule.queries > 1 ? 'attentionPathStems' : 'attentionPathLone';
  return isDecode ? 'attentionPathDecode' : 'attentionPathShared';
}

/** The pieces of a kernel by the names that its template gives them. */
function partsOf(template: DecodeTemplate, values: object): Readonly<Record<string, string>> {
  switch (template) {
    case 'attentionPathDecode':
      return {
        power2: part('attentionPower2', values),
        ...queryParts(values),
        merge: part('attentionDecodeMerge', values),
      };
    case 'attentionPathLone':
      return {
        ...pathParts({ ...values, isLone: true, slot: 'slot' }, 2, 2),
        ...queryParts(values),
        totals: totals(values),
      };
    case 'attentionPathStems':
      return {
        ...pathParts({ ...values, isLone: true, slot: 'slot' }, 2, 2, 'attentionStemProducts'),
        ...queryParts(values),
        totals: totals(values),
      };
    case 'attentionPathShared':
      return { ...pathParts(values, 3, 2), totals: totals(values) };
    default:
      return template satisfies never;
  }
}

/** How a block finds its only query, and holds it. */
const queryParts = (values: object): Readonly<Record<string, string>> => ({
  functions: render('attentionDecodeFunctions', values),
  path: part('attentionOneQuery', values, 1),
  operand: part('attentionQueryOperand', values, 1),
  copy: part('attentionCopyRows', values, 1),
});

const totals = (values: object): string => part('attentionPathTotals', values);

/** What the template of one query a block reads beside the others. `indices`: buffers that say where keys lie. */
function decodeValues(
  kernel: AttentionKernel,
  { queries, keys, cluster = 1, teams = 1, lone }: CudaAttentionSchedule,
  indices: readonly Operand[],
): object {
  const isStems = queries > 1;
  const wholeRows = 32 % rowPieces(kernel) === 0;
  return {
    cluster,
    teams,
    isCluster: cluster > 1,
    manyTeams: teams > 1,
    isAlone: cluster * teams === 1,
    isStems,
    isHalf: !isStems && kernel.heads / kernel.kvHeads <= MMA_ROWS / 2,
    // Where a row of the operand of scores lies, and whether it has a query.
    ...(isStems
      ? { hasRow: 'tokens[half] >= 0', rowAt: 'q_rows[half]' }
      : { hasRow: 'half < HALVES && row < GROUP', rowAt: 'q + row * D' }),
    readsAhead: indices.every(({ isInput }) => isInput),
    teamBytes: decodeTeamBytes(kernel, keys),
    wholeRows,
    // A lone warp has no registers for it.
    keepsPiece: wholeRows && lone === undefined,
  };
}
