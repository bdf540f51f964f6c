/** What rows of a product with adapters have to be: for tests of skeletons on a device. */
import assert from 'node:assert/strict';

type Rows = ReadonlyMap<string, readonly Float64Array[]>;

export function same(got: Float64Array, expected: Float64Array, what: string): void {
  got.forEach((x, i) => assert(Object.is(x, expected[i]), `${what}: column ${i} is ${x}, not ${expected[i]}`));
}

/**
 * Rows without a slot have the bits of a kernel without adapters; all are near float64, and some are changed by their
 * adapters. Rows of each output, by its name; `slots`: those of rows, −1 for none.
 */
export function checkAdapted(got: Rows, without: Rows, expected: Rows, slots: readonly number[]): void {
  let changed = 0;
  for (const [name, rows] of got) {
    const most = expected.get(name)!.reduce((a, row) => row.reduce((x, y) => Math.max(x, Math.abs(y)), a), 0);
    rows.forEach((row, i) => {
      if (slots[i]! < 0) same(row, without.get(name)![i]!, `${name} of base row ${i}`);
      else if (row.some((x, at) => x !== without.get(name)![i]![at])) changed++;
      if (name === 'nextTail') return;
      row.forEach((x, at) => {
        const wanted = expected.get(name)![i]![at]!;
        assert(Math.abs(x - wanted) <= most / 64, `${name}[${i}, ${at}] is ${x}, not ${wanted}`);
      });
    });
  }
  assert(changed > 0, 'adapters change nothing');
}
