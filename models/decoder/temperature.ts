/** Temperatures of attention: queries of long texts are multiplied by a number that grows with their positions. */
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';

/** How queries grow with their positions, in steps. */
export interface Temperature {
  readonly every: number;
  readonly by: number;
  /** What the first position counts as. */
  readonly from: 0 | 1;
  readonly layers: 'unrotated' | 'all';
}

/** f32[T, 1, 1]: what queries at `position`, f32[T], are multiplied by. */
export function temperature(b: GraphBuilder, position: Value, { every, by, from }: Temperature): Value {
  const constant = (value: number, hint: string): Value => b.add('const', {}, { value }, hint);
  const one = constant(1, 'one');
  const counted = from === 0 ? position : b.add('add', { a: position, b: one });
  const count = b.add('div', { a: counted, b: constant(every, 'every') });
  const log = b.add('log', { x: b.add('add', { a: b.add('floor', { x: count }), b: one }) });
  const factor = b.add('add', { a: b.add('mul', { a: log, b: constant(by, 'by') }), b: one }, {}, 'temperature');
  return b.add('reshape', { x: factor }, { shape: ['T', 1, 1] }, 'temperature_of_token');
}
