/** Checks calls of `step` that score paths: what each token sees, and that every token of every choice is scored. */
import fc from 'fast-check';
import type { WalkedBatch, WalkLimits } from '../../evaluate/scorer.js';
import type { Path } from '../../evaluate/tree.js';
import { StateMemory } from './stateRows.js';

/** Runs the calls over a cache, and states, that know for each row the tokens up to the one written there. */
export function checkCalls(
  paths: readonly Path[],
  walked: Iterable<WalkedBatch>,
  limits: WalkLimits,
): { readonly tokens: number; readonly calls: number } {
  const cache = new Map<number, string>();
  const extend = (before: string, token: number): string => (before === '' ? `${token}` : `${before},${token}`);
  const states = limits.states === undefined ? undefined : new StateMemory(limits.states, '', extend);
  const found = new Map<string, string>();
  let tokens = 0;
  let calls = 0;
  for (const { batch, scored } of walked) {
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
    states?.call(batch).forEach((path, t) => expectEqual(path, cache.get(batch.slot[t]!)!));
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

/** Contexts in which each token comes seven times, so that what paths share is worth a tree. */
export const stretched = (paths: readonly Path[]): Path[] =>
  paths.map((path) => ({
    ...path,
    context: Int32Array.from([...path.context].flatMap((token) => new Array<number>(7).fill(token))),
  }));

/** The choices of a few questions over three tokens, which often begin with the same ones. */
export const someQuestions = fc
  .array(fc.tuple(tokensOf(1, 8), fc.array(tokensOf(1, 4), { minLength: 1, maxLength: 4 })), {
    minLength: 1,
    maxLength: 10,
  })
  .map((list) =>
    list.flatMap(([context, choices], question) =>
      choices.map((continuation, choice): Path => ({ question, choice, context, continuation })),
    ),
  );
