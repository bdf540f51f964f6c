/**
 * Loads of a deferred epilogue two batches ahead, over the ends of rows: a warp that loaded a batch only when it needs
 * it would wait for memory most of the time, and three warps would be late for products of 8-bit operands.
 */
import type { Operand } from '../text/operands.js';
import { block } from '../text/statements.js';
import { CHUNK_BYTES, CHUNK_GROUPS, CHUNKS_OF_PART, lowChunk } from './handoff.js';
import {
  accessType,
  exchanged,
  FIELDS,
  isVector,
  QUAD,
  unitWords,
  wordsOf,
  type VectorContext,
} from './vectorAccess.js';

/** 8-column groups of a batch. */
export const AHEAD_GROUPS = 2 * CHUNK_GROUPS;
/** Fewest groups of the last batch. */
const MIN_GROUPS = AHEAD_GROUPS / 2;
/** Batches whose lower bits lie together. */
const OF_PART = (CHUNKS_OF_PART * CHUNK_GROUPS) / AHEAD_GROUPS;
/** Batches that are on their way. */
const BATCHES_AHEAD = 2;
/** Registers for them: with these, 120 suffice. */
const MAX_WORDS = 24;

/** What is loaded ahead of an epilogue of `groups` groups, and in how many batches. The last may have fewer groups. */
export interface LoadsAhead {
  readonly loads: readonly Operand[];
  readonly groups: number;
  readonly batches: number;
}

/**
 * Undefined where a warp loads what it needs when it needs it. Tiles do whose last batch is short, as of 208 columns:
 * with loads ahead, o of 6,656 columns took as long and down 1 to 2 % longer (an H100, 4,096 to 6,528 rows).
 */
export function loadsAhead(
  { segment }: VectorContext,
  loads: readonly Operand[],
  groups: number,
): LoadsAhead | undefined {
  const batches = Math.ceil(groups / AHEAD_GROUPS);
  const words = loads.reduce((sum, operand) => sum + BATCHES_AHEAD * wordsOf(operand, AHEAD_GROUPS), 0);
  return loads.length > 0 &&
    Number.isInteger(batches / BATCHES_AHEAD) &&
    (groups % AHEAD_GROUPS === 0 || groups % AHEAD_GROUPS >= MIN_GROUPS) &&
    words <= MAX_WORDS &&
    loads.every((operand) => isVector(operand, segment, AHEAD_GROUPS))
    ? { loads, groups, batches }
    : undefined;
}

const aheadName = (i: number): string => `a${i}_`;

/**
 * Loads batch `batch` of row `row` (C expressions, int) to place `to`. They find `quad` and `column0`. Lanes behind
 * the last column load the last ones again. What lies behind the tile's last group is loaded and not used.
 */
const loadText = (
  { operands, segment: { columns }, isWhole }: VectorContext,
  { loads, groups }: LoadsAhead,
  { to, batch, row }: Readonly<Record<'to' | 'batch' | 'row', string>>,
): string[] =>
  loads.flatMap((operand, i) => {
    const type = accessType(operand);
    const isInside = isWhole && groups % QUAD === 0;
    const column = `column0 + 8 * (${AHEAD_GROUPS} * ${batch} + unit_ + quad)`;
    const load = [
      `const int column_ = ${isInside ? column : `tw_least(${column}, ${columns - 8})`};`,
      `const ${type} words_ = *(const ${type} *)(${operands.base(operand)} + (long long)${row} * ${operand.stride}` +
        ' + column_);',
      ...unitWords(`${aheadName(i)}[${to}]`, operand).map((word, j) => `${word} = words_.${FIELDS[j]!};`),
    ];
    const hasUnit = `if (${AHEAD_GROUPS} * ${batch} + unit_ < ${groups})`;
    return [
      '#pragma unroll',
      ...block(
        `for (int unit_ = 0; unit_ < ${AHEAD_GROUPS}; unit_ += ${QUAD})`,
        groups % AHEAD_GROUPS === 0 ? load : block(hasUnit, load),
      ),
    ];
  });

/**
 * Statements before the first of a warp's units: what it needs first is on its way. They find `unit0` and `place`.
 * `column0`, `rows`: C expressions (int) of the tile's first column, and of the number of rows.
 */
export const firstLoads = (context: VectorContext, ahead: LoadsAhead, column0: string, rows: string): string[] => [
  ...ahead.loads.map((operand, i) => `unsigned ${aheadName(i)}[${BATCHES_AHEAD}][${wordsOf(operand, AHEAD_GROUPS)}];`),
  ...block('', [
    `const int self = tw_thread(), quad = self & 3, column0 = ${column0},`,
    `    row = tw_least(place.row0 + unit0 * 8 + (self >> 2 & 7), ${rows} - 1);`,
    '#pragma unroll',
    ...block(
      `for (int batch_ = 0; batch_ < ${BATCHES_AHEAD}; batch_++)`,
      loadText(context, ahead, { to: 'batch_', batch: 'batch_', row: 'row' }),
    ),
  ]),
];

/** A batch of `count` groups. `batch`: C expression (int) of its number, constant once loops are unrolled. */
export interface Batch {
  readonly batch: string;
  readonly count: number;
}

/**
 * Statements at the beginning of a batch: its products and what was loaded, as `l0_` and so on, and the loads of a
 * later batch of this row or of the warp's next one.
 */
export const takeBatch = (
  context: VectorContext,
  ahead: LoadsAhead,
  rows: string,
  { batch, count }: Batch,
): string[] => [
  ...Array.from({ length: Math.ceil(count / CHUNK_GROUPS) }, (_, i) => {
    const chunk = `(${AHEAD_GROUPS / CHUNK_GROUPS} * ${batch} + ${i})`;
    return `tw_take(handoff + ${chunk} * ${CHUNK_BYTES}, high_ + ${CHUNK_GROUPS} * ${chunk});`;
  }),
  `if (${batch} % ${OF_PART} == 0) tw_take(handoff + (${lowChunk(8 * ahead.groups)} + ${batch} / ${OF_PART})` +
    ` * ${CHUNK_BYTES}, low_ + ${CHUNKS_OF_PART} * (${batch} / ${OF_PART}));`,
  ...ahead.loads.flatMap((operand, i) => [
    `unsigned l${i}_[${wordsOf(operand, count)}];`,
    '#pragma unroll',
    ...block(`for (int unit_ = 0; unit_ < ${count}; unit_ += ${QUAD})`, [
      `const ${accessType(operand)} words_ = ${exchanged(`${aheadName(i)}[${batch} % ${BATCHES_AHEAD}]`, operand)};`,
      ...unitWords(`l${i}_`, operand).map((word, j) => `${word} = words_.${FIELDS[j]!};`),
    ]),
  ]),
  ...block(`if (${batch} + ${BATCHES_AHEAD} < ${ahead.batches} || unit + unitStep < units)`, [
    `const bool isOwn = ${batch} + ${BATCHES_AHEAD} < ${ahead.batches};`,
    `const int later_ = isOwn ? ${batch} + ${BATCHES_AHEAD} : ${batch} + ${BATCHES_AHEAD} - ${ahead.batches},`,
    `    ahead_ = isOwn ? row : tw_least(place.row0 + local + 8 * unitStep, ${rows} - 1);`,
    ...loadText(context, ahead, { to: `${batch} % ${BATCHES_AHEAD}`, batch: 'later_', row: 'ahead_' }),
  ]),
];
