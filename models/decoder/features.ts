/** What `step` keeps for a draft head that goes on from the model's own features. */
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import { DRAFT_FEATURES } from '../../ir/stepping.js';
import type { FloatType } from '../../ir/types.js';
import { at } from '../../system/at.js';
import type { CacheShape, DraftFeatures, GraphOptions } from '../model/model.js';
import type { Decoder } from './layers.js';

/** What states of features hold: numbers of the type that attention reads. */
export const rounded = (b: GraphBuilder, x: Value, dtype: FloatType): Value =>
  dtype === 'f32' ? x : b.add('cast', { x }, { dtype }, `${x.name}_rounded`);

/** Numbers of a state as f32. */
export const widened = (b: GraphBuilder, x: Value, hint: string): Value =>
  x.type.dtype === 'f32' ? x : b.add('cast', { x }, { dtype: 'f32' }, hint);

/** The state with the features of all tokens that are kept. */
export const featuresState = (b: GraphBuilder, { rows, dtype }: CacheShape, width: number): Value =>
  b.state(DRAFT_FEATURES, dtype, [rows, width]);

/**
 * Writes the features of each new token to its slot; gives the state. Streams are read with the digits that products of
 * the next layer read, so that the model itself computes the same bits as without features.
 */
export function keepFeatures(
  b: GraphBuilder,
  { h, streams, normed }: Pick<Decoder, 'h' | 'streams' | 'normed'>,
  { width, of, build }: DraftFeatures,
  { cache, slot, dtypeOf }: { readonly cache: CacheShape; readonly slot: Value } & Pick<GraphOptions, 'dtypeOf'>,
): Value {
  return b.scope('features', () => {
    const all = [...streams, h];
    const read = (stream: Value): Value => widened(b, rounded(b, stream, cache.dtype), `${stream.name}_wide`);
    const inputs = of === 'normed' ? [normed(h, read(h))] : of.map((layer) => read(at(all, layer)));
    const features = rounded(b, build(b, inputs, dtypeOf), cache.dtype);
    return b.add('write_rows', { x: featuresState(b, cache, width), rows: features, slot }, {}, 'features_kept');
  });
}
