/**
 * Wide loads and stores in a batch of an epilogue's column groups. A lane of a quad owns two columns of every group,
 * but in memory the columns of a group are adjacent. So the quad exchanges the data of four groups: each lane loads or
 * stores a whole group, 16 bytes of 16-bit elements, and works on its own columns. Stores of 4 bytes per lane would
 * fill only half a sector each and slow the concurrent product by a few per cent.
 */
import type { Segment } from '../../../ir/kernel.js';
import { roundUp } from '../../../ir/types.js';
import { firstHalf, type StoreSite } from '../text/fragment.js';
import { type CudaOperands, isByte, type Operand, packElement, unpackElement } from '../text/operands.js';
import { block, unrolled } from '../text/statements.js';
import { CHUNK_GROUPS, CHUNKS_OF_PART } from './layout.js';

/** Lanes that share a row of a fragment, and therefore groups among which they exchange words. */
export const QUAD = 4;

/** The memory accesses of a segment's epilogue. */
export interface VectorContext {
  readonly segment: Segment;
  readonly operands: CudaOperands;
  /** Every tile lies inside the segment. */
  readonly isWhole: boolean;
  /** Every tile holds whole rotated heads. */
  readonly holdsWholeHeads: boolean;
  /** A branch guards every store. Where registers are short, later loads may not be moved before it. */
  readonly isBranched: boolean;
}

/**
 * Whether `operand` is read or written by whole groups, `units` of them in a batch. Without pairs, lanes without a
 * group do nothing.
 */
export function isVector(operand: Operand, { columns, pairing }: Segment, units: number): boolean {
  const { dtype, stride } = operand;
  const isNarrow = dtype === 'bf16' || dtype === 'f16' || (isByte(operand) && pairing.kind === 'none');
  return isNarrow && (pairing.kind === 'none' || units % QUAD === 0) && columns % 8 === 0 && stride % 8 === 0;
}

/**
 * How a lane holds its elements of a batch: words of two adjacent elements, of one group or, for bytes, of two groups.
 */
export const wordsOf = (operand: Operand, groups: number): number => roundUp(groups, QUAD) / (isByte(operand) ? 2 : 1);

/** The part of a group that a lane loads or stores. */
export const accessType = (operand: Operand): string => (isByte(operand) ? 'uint2' : 'uint4');
/** The words of the four groups from `unit_` on. */
export const unitWords = (name: string, operand: Operand): string[] =>
  isByte(operand) ? [0, 1].map((i) => `${name}[unit_ / 2 + ${i}]`) : [0, 1, 2, 3].map((i) => `${name}[unit_ + ${i}]`);
export const FIELDS = ['x', 'y', 'z', 'w'] as const;

/** Buffers that an epilogue without pairs reads at the element itself. They are loaded before they are used. */
export class VectorLoads {
  private readonly list: readonly Loaded[];
  private readonly context: VectorContext;
  private readonly origin: string;
  private readonly count: number;

  constructor(context: VectorContext, loads: readonly Operand[], origin: string, count: number) {
    this.context = context;
    this.origin = origin;
    this.count = count;
    this.list = loads.map((operand, i) => ({
      operand,
      name: `l${i}_`,
      isVector: isVector(operand, context.segment, count),
    }));
  }

  /** All loads are started before the first is waited for. */
  lines(): string[] {
    return [...this.list.flatMap((each) => this.load(each)), ...this.list.flatMap((each) => this.exchange(each))];
  }

  /**
   * C expression of an element: float, or unsigned for a byte. `group` is the index in the batch, constant once loops
   * are unrolled.
   */
  element(buffer: string, group: () => string, lane: number): string | undefined {
    const own = this.list.find(({ operand }) => operand.name === buffer);
    if (own === undefined) return undefined;
    const { operand, name } = own;
    if (!own.isVector) return `${name}[${group()}].${lane === 0 ? 'x' : 'y'}`;
    return unpackElement(operand, name, group(), lane);
  }

  private load({ operand, name, isVector: isGroup }: Loaded): string[] {
    const {
      operands,
      segment: { columns },
      isWhole,
    } = this.context;
    const type = isGroup ? accessType(operand) : operand.dtype === 'u8' ? 'uchar2' : 'float2';
    const outside = [
      ...(isWhole ? [] : [`column_ >= ${columns}`]),
      ...(isGroup && this.count % QUAD !== 0 ? [`unit_ + quad >= ${this.count}`] : []),
    ];
    const guard = outside.length === 0 ? '' : `${outside.join(' || ')} ? ${type}{} : `;
    const from = `${operands.base(operand)} + (long long)row * ${operand.stride} + column_`;
    if (!isGroup) {
      return [
        `${type} ${name}[${this.count}];`,
        '#pragma unroll',
        `for (int group_ = 0; group_ < ${this.count}; group_++) {`,
        `  const int column_ = ${this.origin} + 8 * group_ + 2 * quad;`,
        `  ${name}[group_] = ${guard}load2(${from});`,
        '}',
      ];
    }
    return [
      `unsigned ${name}[${wordsOf(operand, this.count)}];`,
      '#pragma unroll',
      `for (int unit_ = 0; unit_ < ${this.count}; unit_ += ${QUAD}) {`,
      `  const int column_ = ${this.origin} + 8 * (unit_ + quad);`,
      `  const ${type} words_ = ${guard}*(const ${type} *)(${from});`,
      ...unitWords(name, operand).map((word, i) => `  ${word} = words_.${FIELDS[i]!};`),
      '}',
    ];
  }

  private exchange({ operand, name, isVector: isGroup }: Loaded): string[] {
    if (!isGroup) return [];
    const words = unitWords(name, operand);
    return [
      '#pragma unroll',
      `for (int unit_ = 0; unit_ < ${this.count}; unit_ += ${QUAD}) {`,
      `  const ${accessType(operand)} words_ = ${exchanged(name, operand)};`,
      ...words.map((word, i) => `  ${word} = words_.${FIELDS[i]!};`),
      '}',
    ];
  }
}

/**
 * C expression of a lane's words of the four groups from `unit_` on after the quad's exchange: from groups that are
 * adjacent in memory to the lane's own columns, and back.
 */
export const exchanged = (name: string, operand: Operand): string =>
  `quad_turn${isByte(operand) ? '_bytes' : ''}(quad, ${unitWords(name, operand).join(', ')})`;

interface Loaded {
  readonly operand: Operand;
  readonly name: string;
  readonly isVector: boolean;
}

interface KeptWords {
  readonly name: string;
  readonly operand: Operand;
  readonly via: string | undefined;
  readonly isPartner: boolean;
}

/** 16-bit and 8-bit results of a batch, kept until a quad can store them. */
export class VectorStores {
  private readonly words: KeptWords[] = [];
  private readonly context: VectorContext;
  private readonly origin: string;
  /** 8-column groups of logical columns at each site. */
  private readonly units: number;
  private next = 0;
  private start = 0;

  constructor(context: VectorContext, origin: string, groups: number) {
    this.context = context;
    this.origin = origin;
    this.units = context.segment.pairing.kind === 'none' ? groups : groups / 2;
  }

  /** Whether results in this buffer are stored by whole groups. */
  takes(operand: Operand): boolean {
    const { pairing } = this.context.segment;
    return (pairing.kind === 'none' || pairing.width === 8) && isVector(operand, this.context.segment, this.units);
  }

  /** The fragment printed next starts at this group of the batch. */
  startAt(group: number): void {
    this.next = 0;
    this.start = this.context.segment.pairing.kind === 'none' ? group : group / 2;
  }

  /** Keeps the words of an output; undefined if it is stored directly. */
  store({ operand, values, isPartner, via }: StoreSite): readonly string[] | undefined {
    if (!this.takes(operand)) return undefined;
    const name = `w${this.next++}_`;
    if (this.next > this.words.length) this.words.push({ name, operand, isPartner, via });
    const unit = `unit_${this.start === 0 ? '' : ` + ${this.start}`}`;
    return [packElement(operand, name, unit, values)];
  }

  declarations(): string[] {
    return this.words.map(({ name, operand }) => `unsigned ${name}[${wordsOf(operand, this.units)}] = {};`);
  }

  stores(): string[] {
    const {
      segment: { pairing, columns },
      operands,
      isWhole,
      isBranched,
    } = this.context;
    return this.words.flatMap(({ name, operand, isPartner, via }, i) => {
      const at = '(unit_ + quad)';
      const column =
        pairing.kind === 'none'
          ? [`const int column = ${this.origin} + 8 * ${at};`]
          : pairing.kind === 'interleave'
            ? [`const int column = (${this.origin}) / 2 + 8 * ${at};`]
            : [
                `const int lying_ = ${this.origin} + 16 * ${at};`,
                `const int column = ${firstHalf('lying_', pairing.headDim, this.context.holdsWholeHeads)}` +
                  `${isPartner ? ` + ${pairing.headDim / 2}` : ''};`,
              ];
      const inUnits = this.units % QUAD === 0 ? '' : ` && unit_ + quad < ${this.units}`;
      const inColumns = isWhole ? '' : ` && ${pairing.kind === 'rotate' ? 'lying_' : 'column'} < ${columns}`;
      const target = via === undefined ? 'row' : `row${i}_`;
      const isInside = inUnits + inColumns + (via === undefined ? '' : ` && ${target} >= 0`);
      const to = `${operands.base(operand)} + (long long)${target} * ${operand.stride} + column`;
      return [
        ...(via === undefined ? [] : [`const int ${target} = ${operands.base(operands.get(via))}[row];`]),
        '#pragma unroll',
        `for (int unit_ = 0; unit_ < ${this.units}; unit_ += ${QUAD}) {`,
        `  const ${accessType(operand)} words_ = ${exchanged(name, operand)};`,
        ...column.map((line) => `  ${line}`),
        isBranched
          ? `  if (isStored${isInside}) store_words(${to}, words_, 1);`
          : `  store_words(${to}, words_, isStored${isInside});`,
        '}',
      ];
    });
  }
}

// Loads of a deferred epilogue two batches ahead, over the ends of rows: a warp that loaded a batch only when it
// needs it would wait for memory most of the time, and three warps would be late for products of 8-bit operands.

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

const aheadName = (i: number): string => `ahead.a${i}_`;

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
      `const int column_ = ${isInside ? column : `min(${column}, ${columns - 8})`};`,
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

/** The members of what is loaded ahead. */
export const declaredAhead = ({ loads }: LoadsAhead): readonly string[] =>
  loads.map((operand, i) => `unsigned a${i}_[${BATCHES_AHEAD}][${wordsOf(operand, AHEAD_GROUPS)}];`);

/** Statements before the first of a warp's rows, `row`: what it needs first is on its way. */
export const firstLoads = (context: VectorContext, ahead: LoadsAhead): string[] =>
  unrolled(
    `for (int batch_ = 0; batch_ < ${BATCHES_AHEAD}; batch_++)`,
    loadText(context, ahead, { to: 'batch_', batch: 'batch_', row: 'row' }),
  );

/** A batch of `count` groups. `batch`: C expression (int) of its number, constant once loops are unrolled. */
export interface LoadBatch {
  readonly batch: string;
  readonly count: number;
}

/**
 * Statements at the beginning of a batch: its products and what was loaded, as `l0_` and so on, and the loads of a
 * later batch of this row or of the warp's next one.
 */
export const takeBatch = (context: VectorContext, ahead: LoadsAhead, { batch, count }: LoadBatch): string[] => [
  ...Array.from({ length: Math.ceil(count / CHUNK_GROUPS) }, (_, i) => {
    const chunk = `(${AHEAD_GROUPS / CHUNK_GROUPS} * ${batch} + ${i})`;
    return `products.take_chunk(${chunk});`;
  }),
  `if (${batch} % ${OF_PART} == 0) products.take_part(${batch} / ${OF_PART});`,
  ...ahead.loads.flatMap((operand, i) => [
    `unsigned l${i}_[${wordsOf(operand, count)}];`,
    '#pragma unroll',
    ...block(`for (int unit_ = 0; unit_ < ${count}; unit_ += ${QUAD})`, [
      `const ${accessType(operand)} words_ = ${exchanged(`${aheadName(i)}[${batch} % ${BATCHES_AHEAD}]`, operand)};`,
      ...unitWords(`l${i}_`, operand).map((word, j) => `${word} = words_.${FIELDS[j]!};`),
    ]),
  ]),
  ...block(`if (${batch} + ${BATCHES_AHEAD} < ${ahead.batches} || products.has_next)`, [
    `const bool isOwn = ${batch} + ${BATCHES_AHEAD} < ${ahead.batches};`,
    `const int later_ = isOwn ? ${batch} + ${BATCHES_AHEAD} : ${batch} + ${BATCHES_AHEAD} - ${ahead.batches},`,
    '    ahead_ = isOwn ? row : products.next_row;',
    ...loadText(context, ahead, { to: `${batch} % ${BATCHES_AHEAD}`, batch: 'later_', row: 'ahead_' }),
  ]),
];
