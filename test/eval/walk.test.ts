/** The walk over all paths: every token of every choice is scored after its own path, and common tokens once. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { orderPaths } from '../../eval/pathOrder.js';
import { measureTree, pathLength, type Path } from '../../eval/tree.js';
import { walk, type WalkLimits } from '../../eval/walk.js';

/** Runs the calls over a cache that knows, for each row, the tokens up to the one written there. */
function check(paths: readonly Path[], limits: WalkLimits): { readonly tokens: number; readonly calls: number } {
  const cache = new Map<number, string>();
  const found = new Map<string, string>();
  let tokens = 0;
  let calls = 0;
  for (const { batch, scored } of walk(orderPaths(paths).paths, limits)) {
    calls++;
    const { length } = batch.tokens;
    tokens += length;
    if (length > limits.tokens || batch.key.length > limits.keys || batch.row.length > limits.rows)
      throw new Error(`a call of ${length} tokens, ${batch.key.length} keys and ${batch.row.length} rows`);
    if (new Set(batch.slot).size !== length) throw new Error('a row is written twice');
    // Kernels write all rows of a call before any is read.
    const seen: string[] = [];
    batch.tokens.forEach((token, t) => {
      const path: string[] = [];
      for (let i = 0; i < batch.position[t]!; i++) path.push(`${batch.key[batch.begin[t]! + i]!}`);
      if (batch.key[batch.begin[t]! + batch.position[t]!] !== batch.slot[t]) throw new Error('its own key is not last');
      seen.push(path.join());
      const before = path.length === 0 ? '' : `${valueOf(cache, batch, Number(path.at(-1)))},`;
      cache.set(batch.slot[t]!, `${before}${token}`);
    });
    seen.forEach((path, t) => {
      const values = path === '' ? [] : path.split(',').map((slot) => cache.get(Number(slot))!.split(',').at(-1)!);
      expectEqual([...values, batch.tokens[t]].join(), cache.get(batch.slot[t]!)!);
    });
    for (const { row, question, choice, index } of scored) {
      const key = `${question} ${choice} ${index}`;
      if (found.has(key)) throw new Error(`${key} is scored twice`);
      found.set(key, `${cache.get(batch.slot[batch.row[row]!]!)},${batch.target[row]}`);
    }
  }
  for (const { question, choice, context, continuation } of paths)
    continuation.forEach((token, index) => {
      const wanted = [...context, ...continuation.slice(0, index), token].join();
      expectEqual(found.get(`${question} ${choice} ${index}`), wanted);
    });
  return { tokens, calls };
}

const valueOf = (cache: ReadonlyMap<number, string>, _batch: unknown, slot: number): string => cache.get(slot)!;

function expectEqual(found: string | undefined, wanted: string): void {
  if (found !== wanted) throw new Error(`found ${found}, not ${wanted}`);
}

const tokensOf = (least: number, most: number): fc.Arbitrary<Int32Array> =>
  fc.array(fc.integer({ min: 0, max: 2 }), { minLength: least, maxLength: most }).map((list) => Int32Array.from(list));

const questions = fc
  .array(fc.tuple(tokensOf(1, 8), fc.array(tokensOf(1, 4), { minLength: 1, maxLength: 4 })), {
    minLength: 1,
    maxLength: 10,
  })
  .map((list) =>
    list.flatMap(([context, choices], question) =>
      choices.map((continuation, choice): Path => ({ question, choice, context, continuation })),
    ),
  );

describe('the walk', () => {
  it('scores every token of every choice once, after its own path, within any limits', () => {
    fc.assert(
      fc.property(
        questions,
        fc.integer({ min: 1, max: 30 }),
        fc.integer({ min: 1, max: 12 }),
        fc.integer({ min: 0, max: 20 }),
        fc.integer({ min: 0, max: 40 }),
        (paths, tokens, rows, more, keys) => {
          const longest = Math.max(...paths.map(pathLength));
          check(paths, { tokens, rows, keys: longest + keys, cacheRows: longest + 1 + more });
        },
      ),
      { numRuns: 1000, seed: 17 },
    );
  });

  it('computes every common beginning once, in one call or where calls are cut between questions', () => {
    fc.assert(
      fc.property(questions, (paths) => {
        const roomy = { tokens: 10_000, rows: 10_000, keys: 100_000, cacheRows: 10_000 };
        expect(check(paths, roomy)).toEqual({ tokens: measureTree(paths, 'tree').tokens, calls: 1 });
      }),
      { numRuns: 200, seed: 18 },
    );
    const shots = Int32Array.from({ length: 50 }, (_, i) => i);
    const paths = Array.from({ length: 40 }, (_, question): Path => ({
      question,
      choice: 0,
      context: Int32Array.from([...shots, 100 + question, 7, 8, 9]),
      continuation: Int32Array.of(5),
    }));
    expect(check(paths, { tokens: 18, rows: 100, keys: 1000, cacheRows: 80 })).toEqual({
      tokens: 50 + 40 * 4,
      calls: 12,
    });
  });
});
