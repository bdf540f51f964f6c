/**
 * What recurrent layers keep between calls of `step`: the states that scans leave, and what convolutions have seen last
 * (decision 69). A row of states belongs to a token: what is behind it. A row of a convolution's tail has the inputs of
 * the last token, then of those before it.
 */
import { defined } from '../../system/defined.js';
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import { KEPT_TAILS, stateName, STEP_STATES, tailName } from '../../ir/stepping.js';
import type { FloatType } from '../../ir/types.js';
import type { ModelStates } from '../model/model.js';
import type { ConvConfig, DeltaConfig, MambaConfig, RecurrentConfig } from './recurrentConfig.js';

/** Bytes of all rows, where that many are neither too few nor more than anybody needs. */
const ALL_BYTES = 4 * 2 ** 30;
const [LEAST_ROWS, MOST_ROWS] = [16, 256];

const deltaNumbers = ({ keyHeads, valueHeads, keyDim, valueDim, taps }: DeltaConfig): number =>
  valueHeads * keyDim * valueDim + (taps - 1) * (2 * keyHeads * keyDim + valueHeads * valueDim);
const mambaNumbers = ({ heads, headDim, groups, stateSize, taps }: MambaConfig): number =>
  heads * headDim * stateSize + (taps - 1) * (heads * headDim + 2 * groups * stateSize);
const convNumbers = ({ taps }: ConvConfig, hidden: number): number => (taps - 1) * hidden;

/** How many rows of states a model has, and how large they are: those of a tail as if they were f32. */
export function recurrentStates(config: RecurrentConfig, hidden: number): ModelStates {
  const numbers =
    config.kind === 'delta'
      ? deltaNumbers(config)
      : config.kind === 'mamba'
        ? mambaNumbers(config)
        : convNumbers(config, hidden);
  const bytes = 4 * numbers * config.layers.length;
  const rows = Math.min(MOST_ROWS, Math.max(LEAST_ROWS, Math.floor(ALL_BYTES / Math.max(1, bytes))));
  return { rows, tails: config.taps - 1, hasScans: config.kind !== 'conv', bytes };
}

/** What a scan computes of. */
export interface ScanOperands {
  readonly q: Value;
  readonly k: Value;
  readonly v: Value;
  readonly decay: Value;
  readonly beta: Value;
  readonly skip?: Value;
}

export interface ScanAttributes {
  readonly rule: 'add' | 'delta';
  readonly scale?: number;
  readonly epsilon?: number;
  readonly takesTurns?: boolean;
}

/** Tokens of a convolution, by how many places they are before each of a call. */
export type Seen = (back: number) => Value;

/** States of a function's layers. Inputs of the function are added as layers need them. */
export class KeptStates {
  /** The states that were written, in order. */
  readonly written: Value[] = [];
  private readonly b: GraphBuilder;
  private readonly sizes: ModelStates;
  private readonly dtype: FloatType;
  private readonly counts = new Map<string, number>();
  private tailInputs: ReturnType<KeptStates['addTailInputs']> | undefined;
  private scanInputs: ReturnType<KeptStates['addScanInputs']> | undefined;

  /** `dtype`: the type in which convolutions read rows. */
  constructor(b: GraphBuilder, sizes: ModelStates, dtype: FloatType) {
    this.b = b;
    this.sizes = sizes;
    this.dtype = dtype;
  }

  /** What a convolution has seen of rows `x`, f32[T, width], and of those before them; and keeps the last of them. */
  convolve(x: Value, before: readonly Value[], part: string, use: (seen: Seen) => Value): Value {
    const { b, dtype } = this;
    const { rows, tails } = this.sizes;
    const width = Number(x.type.shape[1]);
    const name = tailName(part, this.count(part));
    const tail = b.state(name, dtype, [rows * tails, width]);
    const { fresh, back: entries, kept } = (this.tailInputs ??= this.addTailInputs(tail));
    const wide = (v: Value, hint: string): Value =>
      dtype === 'f32' ? v : b.add('cast', { x: v }, { dtype: 'f32' }, `${hint}_f`);
    const own = dtype === 'f32' ? x : b.add('cast', { x }, { dtype }, `${part}_rounded`);
    const result = use((back) => {
      const row = wide(b.add('gather_rows', { x: own, index: before[back]! }, {}, `${part}_before`), `${part}_before`);
      if (back === 0) return row;
      const old = b.add('gather_rows', { x: tail, index: entries[back - 1]! }, {}, `${part}_kept`);
      const condition = b.add('le', { a: b.add('const', {}, { value: back }, 'back'), b: fresh }, {}, 'is_of_call');
      return b.add('select', { condition, a: row, b: wide(old, `${part}_kept`) }, {}, `${part}_seen`);
    });
    b.scope('write', () => {
      const now = wide(b.add('gather_rows', { x: own, index: kept.token }, {}, `${part}_last`), `${part}_last`);
      const old = wide(b.add('gather_rows', { x: tail, index: kept.entry }, {}, `${part}_old`), `${part}_old`);
      const condition = b.add('eq', { a: kept.isNew, b: b.add('const', {}, { value: 1 }, 'one') }, {}, 'is_new');
      const last = b.add('select', { condition, a: now, b: old }, {}, `${part}_tail`);
      const rounded = dtype === 'f32' ? last : b.add('cast', { x: last }, { dtype }, `${part}_tail_rounded`);
      this.written.push(b.add('write_rows', { x: tail, rows: rounded, slot: kept.slot }, {}, `${part}_tail_kept`));
    });
    return result;
  }

  /** A scan that goes on from states, and keeps those behind it. */
  scan(
    { skip, ...operands }: ScanOperands & { readonly before: Value; readonly end: Value },
    { rule, scale, epsilon, takesTurns }: ScanAttributes,
  ): Value {
    const { b } = this;
    const { k, v } = operands;
    const [heads, keyDim, valueDim] = [v.type.shape[1], k.type.shape[2], v.type.shape[2]].map(Number);
    const state = b.state(stateName(this.count('')), 'f32', [this.sizes.rows, heads!, keyDim!, valueDim!]);
    const { from, to, also } = (this.scanInputs ??= this.addScanInputs(state));
    const named = { rule, ...defined({ epsilon, takesTurns }) };
    const told = b.add(
      'scan',
      { ...operands, state, from, ...(skip === undefined ? {} : { skip }) },
      { ...named, ...(scale === undefined ? {} : { scale }), kept: true },
      'told',
    );
    const { q: _, ...others } = operands;
    this.written.push(b.add('scan_state', { ...others, state, from, to, also }, named, 'state_kept'));
    return told;
  }

  private count(part: string): number {
    const count = this.counts.get(part) ?? 0;
    this.counts.set(part, count + 1);
    return count;
  }

  private addTailInputs(tail: Value) {
    const { b } = this;
    const entry = { kind: 'entry', state: tail.name } as const;
    const asColumn = (v: Value, rows: string, hint: string): Value =>
      b.add('reshape', { x: b.add('cast', { x: v }, { dtype: 'f32' }, `${hint}_f`) }, { shape: [rows, 1] }, hint);
    const { fresh, tailBack, tailToken, tailEntry, isTailNew, tailSlot } = STEP_STATES;
    const isNew = b.param(isTailNew, 'i32', [KEPT_TAILS]);
    return {
      fresh: asColumn(b.param(fresh, 'i32', ['T']), 'T', 'new_before'),
      back: Array.from({ length: this.sizes.tails }, (_, i) => b.param(tailBack(i + 1), 'i32', ['T'], entry)),
      kept: {
        token: b.param(tailToken, 'i32', [KEPT_TAILS], { kind: 'row', of: 'T' }),
        entry: b.param(tailEntry, 'i32', [KEPT_TAILS], entry),
        isNew: asColumn(isNew, KEPT_TAILS, 'new'),
        slot: b.param(tailSlot, 'i32', [KEPT_TAILS], { kind: 'slot', state: tail.name }),
      },
    };
  }

  private addScanInputs(state: Value) {
    const { b } = this;
    const slot = { kind: 'slot', state: state.name } as const;
    const { stateFrom, stateTo, stateAlso } = STEP_STATES;
    return {
      from: b.param(stateFrom, 'i32', ['T'], { kind: 'entryOrNone', state: state.name }),
      to: b.param(stateTo, 'i32', ['T'], slot),
      also: b.param(stateAlso, 'i32', ['T'], slot),
    };
  }
}
