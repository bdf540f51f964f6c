/** Beam search against an exhaustive search, on a made-up model whose next token depends on the last and its place. */
import { describe, expect, it } from 'vitest';
import { type Beam, searchBeams } from '../../engine/beams.js';
import { Engine } from '../../engine/engine.js';
import { pathModel } from '../support/pathModel.js';
import { hash32 } from '../../ir/gumbel.js';
import { madeUp, type MadeUpModel } from '../support/deviceModel.js';
import { filteredRows } from '../support/sampling.js';

const VOCAB = 4;

function logitsAfter(token: number, position: number): Float32Array {
  return Float32Array.from(
    { length: VOCAB },
    (_, next) => (hash32(hash32(token * 31 + position, next), 7) % 997) / 400,
  );
}
const logProbs = (token: number, position: number): Float32Array => {
  const z = logitsAfter(token, position);
  const total = Math.log(z.reduce((sum, value) => sum + Math.exp(value), 0));
  return z.map((value) => value - total);
};

const options: MadeUpModel = {
  limits: { tokens: 64, keys: 4096, filtered: 64, entries: 4 },
  cacheTokens: 4096,
  maxLength: 64,
  vocab: VOCAB,
  call: (inputs) => {
    const { tokens, position, row, target = row } = inputs;
    return Promise.resolve({
      logProb: Float32Array.from(row, (at, i) => logProbs(tokens[at]!, position[at]!)[target[i]!]!),
      isArgmax: row.map(() => 0),
      nextToken: row.map(() => 0),
      nextTokenLogProb: new Float32Array(row.length),
      filtered: filteredRows(inputs, logitsAfter),
    });
  },
};

/** Every path of `length` tokens, or fewer where it ends at a stop token, best first. */
function exhaustive(prompt: readonly number[], length: number, stop: ReadonlySet<number>): readonly Beam[] {
  const grow = (beam: Beam): readonly Beam[] => {
    const last = beam.tokens.at(-1) ?? prompt.at(-1)!;
    const isStopped = beam.tokens.length > 0 && stop.has(last);
    if (beam.tokens.length === length || isStopped) return [{ ...beam, reason: isStopped ? 'eos' : 'length' }];
    return [...logProbs(last, prompt.length + beam.tokens.length - 1)].flatMap((logProb, token) =>
      grow({
        tokens: [...beam.tokens, token],
        logProbs: [...beam.logProbs, logProb],
        score: beam.score + logProb,
        reason: 'length',
      }),
    );
  };
  return [...grow({ tokens: [], logProbs: [], score: 0, reason: 'length' })].sort((a, b) => b.score - a.score);
}

describe('beam search', () => {
  it.each([
    ['no stop token', new Set<number>()],
    ['a stop token', new Set([2])],
  ])('finds the best of all paths where it keeps every beginning, with %s', async (_title, stopTokens) => {
    for (const prompt of [[0], [1, 3, 2], Array.from({ length: 20 }, (_, i) => i % VOCAB)]) {
      const found = await searchBeams(Engine.of(madeUp(options)), {
        prompt,
        maxNewTokens: 3,
        beams: 16,
        stopTokens,
      });
      expect(found).toEqual(exhaustive(prompt, 3, stopTokens).slice(0, 16));
    }
  });

  it('follows the most likely token with one beam', async () => {
    const [beam] = await searchBeams(Engine.of(madeUp(options)), { prompt: [1], maxNewTokens: 5, beams: 1 });
    let [last, expected] = [1, [] as number[]];
    for (let position = 0; position < 5; position++) {
      const z = logitsAfter(last, position);
      last = z.indexOf(Math.max(...z));
      expected = [...expected, last];
    }
    expect(beam!.tokens).toEqual(expected);
  });

  it('ends with the context and with the memory for keys and values', async () => {
    const prompt = Array.from({ length: 60 }, (_, i) => i % VOCAB);
    const search = async (changed: Partial<MadeUpModel>) =>
      (await searchBeams(Engine.of(madeUp({ ...options, ...changed })), { prompt, maxNewTokens: 99, beams: 3 })).map(
        ({ tokens, logProbs, reason }) => [tokens.length, logProbs.length, reason],
      );
    expect(await search({})).toEqual(Array.from({ length: 3 }, () => [4, 4, 'context']));
    expect(await search({ maxLength: 99, cacheTokens: 16 * 12, limits: { ...options.limits, keys: 62 } })).toEqual(
      Array.from({ length: 3 }, () => [2, 2, 'cache']),
    );
    // The last token of a path fills the last page, and nothing follows it.
    expect(await search({ maxLength: 99, cacheTokens: 64 })).toEqual(Array.from({ length: 3 }, () => [4, 4, 'cache']));
  });

  it('keeps what it has when it is told to stop', async () => {
    const controller = new AbortController();
    let calls = 0;
    const stopping = madeUp({
      ...options,
      call: (inputs) => {
        if (++calls === 4) controller.abort();
        return options.call(inputs);
      },
    });
    const found = await searchBeams(Engine.of(stopping), {
      prompt: [1],
      maxNewTokens: 50,
      beams: 3,
      signal: controller.signal,
    });
    expect(new Set(found.map(({ tokens }) => tokens.join())).size).toBe(found.length);
    for (const { tokens, logProbs, reason } of found)
      expect([reason, tokens.length, logProbs.length]).toEqual(['aborted', 3, 3]);
  });

  it('refuses a number of beams that is out of range', async () => {
    const search = (beams: number) => searchBeams(Engine.of(madeUp(options)), { prompt: [1], maxNewTokens: 1, beams });
    await expect(search(0)).rejects.toThrow('0 beams: expected 1 to 20');
    await expect(search(21)).rejects.toThrow('21 beams: expected 1 to 20');
  });

  it('compute two tokens for each new one: the others are found, or copied from the path before', async () => {
    const model = pathModel();
    const prompt = Array.from({ length: 40 }, (_, i) => i);
    const beams = await searchBeams(Engine.of(model), { prompt, maxNewTokens: 10, beams: 3 });
    expect(beams.length).toBe(3);
    expect(model.totals.tokens).toBe(40 + 3 * 10 * 2);
  });
});
