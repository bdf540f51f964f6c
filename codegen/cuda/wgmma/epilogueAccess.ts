/**
 * Wide loads and stores in a batch of an epilogue's column groups. A lane of a quad owns two columns of every group,
 * but in memory the columns of a group are adjacent. So the quad exchanges the data of four groups: each lane loads or
 * stores a whole group, 16 bytes of 16-bit elements, and works on its own columns. Stores of 4 bytes per lane would
 * fill only half a sector each and slow the concurrent product by a few per cent.
 */
import type { Segment } from '../../../ir/kernel.js';
import { roundUp } from '../../../ir/types.js';
import type { StoreSite } from '../text/fragment.js';
import { type CudaOperands, ELEMENT_TYPES, isByte, type Operand } from '../text/operands.js';
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

/** What a name of a kernel's values is called that holds the words of a buffer. */
const wordsName = (operand: Operand, operands: CudaOperands): string => `${operands.nameOf(operand)}_words`;
/** C expression of a row of a buffer. */
const rowOf = (operand: Operand, operands: CudaOperands, row = 'row'): string =>
  `${operands.base(operand)} + (long long)${row} * ${operand.stride}`;
/** The type of so many groups of a row: gemm/epilogue.cuh. */
const groupsType = (operand: Operand, groups: number): string =>
  `GroupWords<${ELEMENT_TYPES[operand.dtype]}, ${groups}>`;
/** The number of columns by which accesses are limited; 0 where every tile lies inside the segment. */
const limit = ({ isWhole, segment }: VectorContext): number => (isWhole ? 0 : segment.columns);

/** Buffers that an epilogue without pairs reads at the element itself. They are loaded before they are used. */
export class VectorLoads {
  private readonly list: readonly Loaded[];
  private readonly context: VectorContext;
  private readonly origin: string;

  constructor(context: VectorContext, loads: readonly Operand[], origin: string, count: number) {
    this.context = context;
    this.origin = origin;
    this.list = loads.map((operand) => ({
      operand,
      name: wordsName(operand, context.operands),
      type: isVector(operand, context.segment, count)
        ? groupsType(operand, count)
        : `GroupPairs<${ELEMENT_TYPES[operand.dtype]}, ${count}>`,
    }));
  }

  /** All loads are started before the first is waited for. */
  lines(): string[] {
    const { operands } = this.context;
    const limited = `load<${limit(this.context)}>`;
    return [
      ...this.list.flatMap(({ operand, name, type }) => [
        `${type} ${name};`,
        `${name}.${limited}(${rowOf(operand, operands)}, ${this.origin}, quad);`,
      ]),
      ...this.list.map(({ name }) => `${name}.turn(quad);`),
    ];
  }

  /** C expression of a pair: float2, or uint2 of bytes. `group`: its group in the batch. */
  pair(buffer: string, group: () => string): string | undefined {
    const own = this.list.find(({ operand }) => operand.name === buffer);
    return own === undefined ? undefined : `${own.name}.pair(${group()})`;
  }
}

interface Loaded {
  readonly operand: Operand;
  readonly name: string;
  readonly type: string;
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
  store({ operand, value, isPartner, via }: StoreSite): readonly string[] | undefined {
    if (!this.takes(operand)) return undefined;
    const i = this.next++;
    if (this.next > this.words.length) {
      const name = `${this.context.operands.nameOf(operand)}_kept${isPartner ? '_second' : ''}`;
      this.words.push({ name, operand, isPartner, via });
    }
    const unit = `unit_${this.start === 0 ? '' : ` + ${this.start}`}`;
    return [`${this.words[i]!.name}.keep(${unit}, ${value});`];
  }

  declarations(): string[] {
    return this.words.map(({ name, operand }) => `${groupsType(operand, this.units)} ${name}{};`);
  }

  stores(): string[] {
    const {
      segment: { pairing },
      operands,
      isBranched,
      holdsWholeHeads,
    } = this.context;
    const limits = `${limit(this.context)}, ${String(isBranched)}`;
    return this.words.flatMap(({ name, operand, isPartner, via }, i) => {
      const target = via === undefined ? 'row' : `row${i}_`;
      const isStored = via === undefined ? 'is_stored' : `is_stored && ${target} >= 0`;
      const to = rowOf(operand, operands, target);
      const [call, row, from] =
        pairing.kind === 'rotate'
          ? [
              `store_half<${limits}, ${pairing.headDim}, ${String(holdsWholeHeads)}>`,
              isPartner ? `${to} + ${pairing.headDim / 2}` : to,
              this.origin,
            ]
          : [`store<${limits}>`, to, pairing.kind === 'interleave' ? `(${this.origin}) / 2` : this.origin];
      return [
        ...(via === undefined ? [] : [`const int ${target} = ${operands.base(operands.get(via))}[row];`]),
        `${name}.${call}(${row}, ${from}, quad, ${isStored});`,
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

/**
 * Loads batch `batch` of row `row` (C expressions, int) to place `to`. They find `quad` and `column0`. Lanes behind
 * the last column load the last ones again. What lies behind the tile's last group is loaded and not used.
 */
const loadText = (
  { operands, segment: { columns }, isWhole }: VectorContext,
  { loads, groups }: LoadsAhead,
  { to, batch, row }: Readonly<Record<'to' | 'batch' | 'row', string>>,
): string[] =>
  loads.map((operand) => {
    const limits = `${isWhole && groups % QUAD === 0 ? 0 : columns}, ${groups}`;
    const from = rowOf(operand, operands, row);
    return (
      `ahead.${wordsName(operand, operands)}[${to}].load_ahead<${limits}>(` +
      `${from}, column0, ${AHEAD_GROUPS} * ${batch}, quad);`
    );
  });

/** The members of what is loaded ahead. */
export const declaredAhead = ({ loads }: LoadsAhead, operands: CudaOperands): readonly string[] =>
  loads.map((operand) => `${groupsType(operand, AHEAD_GROUPS)} ${wordsName(operand, operands)}[${BATCHES_AHEAD}];`);

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
  ...ahead.loads.flatMap((operand) => {
    const name = wordsName(operand, context.operands);
    return [
      `${groupsType(operand, count)} ${name};`,
      `${name}.take(ahead.${name}[${batch} % ${BATCHES_AHEAD}], quad);`,
    ];
  }),
  ...block(`if (${batch} + ${BATCHES_AHEAD} < ${ahead.batches} || products.has_next)`, [
    `const bool is_own = ${batch} + ${BATCHES_AHEAD} < ${ahead.batches};`,
    `const int later = is_own ? ${batch} + ${BATCHES_AHEAD} : ${batch} + ${BATCHES_AHEAD} - ${ahead.batches},`,
    '    later_row = is_own ? row : products.next_row;',
    ...loadText(context, ahead, { to: `${batch} % ${BATCHES_AHEAD}`, batch: 'later', row: 'later_row' }),
  ]),
];
