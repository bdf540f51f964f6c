/** How rows are sent to experts: the reference of every kernel that does. */

/** Most experts that a row is sent to: each has a place among a kernel's parameters. */
export const MAX_CHOSEN = 16;
/** Most experts of a layer. */
export const MAX_EXPERTS = 1024;

/** The columns of the `count` largest numbers, in descending order, of equal ones the first. */
export const largestOf = (row: Float64Array, count: number): readonly number[] =>
  Array.from(row, (value, column) => ({ value, column }))
    .sort((a, b) => b.value - a.value || a.column - b.column)
    .slice(0, count)
    .map(({ column }) => column);

/**
 * Pairs in order of their experts, those of one expert in their own order. `experts`: the expert of each pair. `order`
 * lists pairs, and `places` is its inverse.
 */
export function expertOrder(experts: Float64Array): { readonly order: Int32Array; readonly places: Int32Array } {
  const order = Int32Array.from(experts, (_, pair) => pair).sort((a, b) => experts[a]! - experts[b]! || a - b);
  const places = new Int32Array(order.length);
  order.forEach((pair, at) => {
    places[pair] = at;
  });
  return { order, places };
}
