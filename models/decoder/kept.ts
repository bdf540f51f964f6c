/** What functions over kept keys and values take: tokens, paths, and the states that layers write and read. */
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import { LAST_TOKEN_ROWS, PATH_TOKENS } from '../../ir/stepping.js';
import { at } from '../../system/at.js';
import { defined } from '../../system/defined.js';
import { type CacheShape, chunked, distances, keyPositions, pathMask, windowed } from '../model/model.js';
import type { DecoderShape, LayerInputs, PositionMasks } from './layers.js';

export const TOKENS = { name: 'T', counts: 'tokens' } as const;
export const KEYS = { name: 'C', counts: 'keys' } as const;
export const ROWS = { name: 'R', counts: 'rows' } as const;

/** What `bias` becomes by positions of queries and keys, which `windowed` describes. */
export const masksBy = (b: GraphBuilder, bias: Value, position: Value, keyPosition: () => Value): PositionMasks => ({
  bias: ({ window, chunk }) => {
    if (window !== undefined) return windowed(b, bias, position, keyPosition(), window);
    return chunk === undefined ? bias : chunked(b, bias, position, keyPosition(), chunk);
  },
  distance: () => distances(b, position, keyPosition()),
  keyPosition: () => keyPositions(b, position, keyPosition()),
});

/** Masks of attention over the keys of paths. */
export function pathMasks(b: GraphBuilder, position: Value): PositionMasks {
  const { bias, keyPosition } = pathMask(b, position, 'C');
  return masksBy(b, bias, position, () => keyPosition);
}

export interface KeptShape extends Pick<DecoderShape, 'layers'> {
  readonly cache: CacheShape;
  /** Layers that have states of their own in place of keys and values, ascending. Default: none. */
  readonly others?: readonly number[] | undefined;
  /** Most tokens of a path. Default: any number. */
  readonly context?: number | undefined;
  /** What the names of the states begin with. Default: nothing. */
  readonly prefix?: string;
}

/** Inputs of layers whose keys and values are kept in states: those of their own tokens are written before. */
export interface KeptPaths extends Omit<LayerInputs, 'tokens'> {
  /** i32[T]: where the keys and values of each token go. */
  readonly slot: Value;
  /** The states that were written, in order. */
  readonly written: Value[];
}

/** Adds the inputs `position`, `slot` and `key`, and `begin` with the masks. */
export function keptPaths(
  b: GraphBuilder,
  { layers, cache: { rows, dtype }, others = [], context, prefix = '' }: KeptShape,
): KeptPaths {
  const states = Array.from({ length: layers - others.length }, (_, i) => ({
    k: `${prefix}k_${i}`,
    v: `${prefix}v_${i}`,
    tail: `${prefix}kt_${i}`,
  }));
  const stateOf = (layer: number) => at(states, layer - others.filter((other) => other < layer).length);
  const state = states[0]?.k ?? PATH_TOKENS;
  const position = b.param('position', 'i32', ['T'], { kind: 'depth', ...defined({ below: context }) });
  const slot = b.param('slot', 'i32', ['T'], { kind: 'slot', state });
  const key = b.param('key', 'i32', ['C'], { kind: 'entry', state });
  const written: Value[] = [];
  return {
    position,
    slot,
    written,
    masks: () => pathMasks(b, position),
    visible: (kind, own, layer) => {
      const before = b.state(stateOf(layer)[kind], dtype, [rows, ...own.type.shape.slice(1).map(Number)]);
      const rounded = dtype === 'f32' ? own : b.add('cast', { x: own }, { dtype }, `${kind}_rounded`);
      const after = b.scope('write', () =>
        b.add('write_rows', { x: before, rows: rounded, slot }, {}, `${kind}_cache`),
      );
      written.push(after);
      const read = b.add('gather_rows', { x: after, index: key }, {}, `${kind}_path`);
      return dtype === 'f32' ? read : b.add('cast', { x: read }, { dtype: 'f32' }, `${kind}_wide`);
    },
  };
}

/** Writes the tokens of a call to its pages, which have nothing else where no layer has keys. */
export function keepPathTokens(b: GraphBuilder, { rows }: CacheShape, tokens: Value, slot: Value): Value {
  const before = b.state(PATH_TOKENS, 'i32', [rows]);
  return b.scope('write', () => b.add('write_rows', { x: before, rows: tokens, slot }, {}, `${PATH_TOKENS}_kept`));
}

/** Tokens that a call draws and the next one takes. */
export interface DrawnTokens {
  /** The tokens of this call, i32[T]. */
  readonly tokens: Value;
  /** The state as this call finds it, i32[N]. */
  readonly before: Value;
}

/**
 * Tokens as they were given, or as the call before has drawn them, which the state `state` keeps. Whatever it holds,
 * the result is a token of the vocabulary. Token ids are exact in f32, in which literals are written.
 */
export function fedTokens(
  b: GraphBuilder,
  { vocabSize }: Pick<DecoderShape, 'vocabSize'>,
  given: Value,
  state: string,
): DrawnTokens {
  const before = b.state(state, 'i32', [LAST_TOKEN_ROWS]);
  const tokens = b.scope('feed', () => {
    const isFed = b.param('isFed', 'i32', ['T'], { kind: 'values' });
    const feed = b.param('feed', 'i32', ['T'], { kind: 'entry', state });
    const f32 = (v: Value, hint: string): Value => b.add('cast', { x: v }, { dtype: 'f32' }, hint);
    const literal = (value: number, hint: string): Value => b.add('const', {}, { value }, hint);
    const last = f32(b.add('gather_rows', { x: before, index: feed }, {}, 'last_token'), 'last_token_f');
    const bounded = b.add('min', {
      a: b.add('max', { a: last, b: literal(0, 'zero') }),
      b: literal(vocabSize - 1, 'last_token'),
    });
    const condition = b.add('eq', { a: f32(isFed, 'is_fed_f'), b: literal(1, 'one') }, {}, 'is_fed');
    const token = b.add('select', { condition, a: bounded, b: f32(given, 'given_f') }, {}, 'token_f');
    return b.add('cast', { x: token }, { dtype: 'i32' }, 'token');
  });
  return { tokens, before };
}

/** The tokens that rows have drawn, i32[R], for the next call: `keep` says where each of them goes. */
export function keepTokens(b: GraphBuilder, state: string, before: Value, drawn: Value): Value {
  const keep = b.param('keep', 'i32', ['R'], { kind: 'slot', state });
  return b.add('write_rows', { x: before, rows: drawn, slot: keep }, {}, 'last_tokens_kept');
}
