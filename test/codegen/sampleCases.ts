/** Random rows of logits and options for the kernel that chooses tokens, its inputs, and what an oracle chooses. */
import { isGreedy, resolveSampling, type Sampling, type SamplingOptions } from '../../engine/options.js';
import { filterInputs, type FilterRow, filtersOf, TokenEntries } from '../../engine/tokenEntries.js';
import type { Extents } from '../../ir/extents.js';
import { noiseKey } from '../../ir/gumbel.js';
import { maskWords } from '../../ir/sampleInputs.js';
import { type Before, oracleChoice } from '../support/sampling.js';
import { randomSource } from './harness.js';
import { bufferOf } from './sampleModule.js';

export type Values = ReadonlyMap<string, Float64Array>;

/** A row of logits, how its token is chosen, and the tokens before it. */
export interface SampleCase {
  readonly z: Float32Array;
  readonly sampling: Sampling;
  readonly before: Before;
}

export function sampleCases(vocab: number, rows: number): readonly SampleCase[] {
  const signed = randomSource(77);
  /** In [0, 1). */
  const random = (): number => (signed() + 1) / 2;
  const pick = <T>(...from: readonly T[]): T => from[Math.floor(random() * from.length)]!;
  const below = (n: number): number => Math.floor(random() * n);

  function randomLogits(kind: number): Float32Array {
    const normal = (): number => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    switch (kind) {
      case 0:
        // Few values: ties at every boundary.
        return Float32Array.from({ length: vocab }, () => below(12) / 2 - 3);
      case 1:
        // All alike, and a few better ones.
        return Float32Array.from({ length: vocab }, (_, token) => (token % 701 === 5 ? 1 : 0));
      case 2:
        // Far apart; many cannot be chosen.
        return Float32Array.from({ length: vocab }, () => (random() < 0.3 ? -Infinity : 80 * normal()));
      default:
        return Float32Array.from({ length: vocab }, () => 3 * normal() + 4);
    }
  }

  /** Most tokens, few, one token of the last word, and none of the first words; rows share them. */
  const masks = [0.97, 0.02, 0, 0.5].map((share, kind) => {
    const mask = new Uint32Array(maskWords(vocab));
    const allow = (token: number): number => (mask[token >> 5]! |= 1 << (token & 31));
    for (let token = kind === 3 ? Math.floor(vocab / 2) : 0; token < vocab; token++) if (random() < share) allow(token);
    allow(vocab - 1 - (kind % 2));
    return mask;
  });

  function randomCase(row: number): SampleCase {
    const options: SamplingOptions = {
      temperature: row % 8 === 7 ? 0 : pick(0.3, 0.8, 1, 1, 1.7),
      seed: row,
      ...pick({}, {}, { topK: pick(1, 2, 40, 500, vocab, 100_000) }),
      ...pick({}, { topP: pick(0.9, 0.5, 0.99, 1e-9, 0.05, 1) }),
      ...pick({}, {}, { minP: pick(0.05, 0.5, 1, 1e-6) }),
      ...pick({}, { repetitionPenalty: pick(1.3, 0.7) }),
      ...pick({}, { presencePenalty: pick(0.5, -1) }),
      ...pick({}, { frequencyPenalty: pick(0.25, 2) }),
      ...pick({}, { logitBias: [[3, 5] as const, [below(vocab), -100] as const, [vocab + 5, 1] as const] }),
      topLogProbs: pick(0, 1, 7, 20),
    };
    const promptLength = 1 + below(40);
    const tokens = Array.from({ length: promptLength + below(30) }, () => pick(below(vocab), below(8)));
    const banned = pick(undefined, undefined, new Set([1, 2, below(vocab)]));
    const mask = pick(undefined, ...masks);
    const before = { tokens, promptLength, banned, mask };
    return { z: randomLogits(row % 5), sampling: resolveSampling(options), before };
  }

  return Array.from({ length: rows }, (_, row) => randomCase(row));
}

/** Inputs of the kernel as the scheduler makes them, and the totals that the head leaves. */
export function sampleInputs(vocab: number, cases: readonly SampleCase[]): Values {
  const rows = cases.map(({ sampling, before: { tokens, promptLength, banned, mask } }): FilterRow => {
    const entries = new TokenEntries({ sampling, promptLength, vocab, banned });
    const { token, bias, count } = entries.listAfter(tokens, tokens.length, banned !== undefined);
    return {
      filters: filtersOf(sampling),
      entries: { token: token.slice(), bias: bias.slice(), count: count.slice() },
      isGenerated: entries.counts && tokens.length > promptLength,
      topCount: sampling.topLogProbs,
      mask,
    };
  });
  const tops = cases.map(({ z }) => Math.fround(z.reduce((a, b) => Math.max(a, b), -Infinity)));
  const keys = cases.map(({ sampling, before }) => noiseKey(sampling.seed, before.tokens.length - 1));
  return new Map<string, Float64Array>(
    Object.entries({
      ...filterInputs(rows),
      logits: cases.flatMap(({ z }) => [...z]),
      top: tops,
      sum: cases.map(({ z }, row) => Math.fround(z.reduce((sum, value) => sum + Math.exp(value - tops[row]!), 0))),
      inverseTemperature: cases.map(({ sampling }) => (isGreedy(sampling) ? 0 : Math.fround(1 / sampling.temperature))),
      low: keys.map(({ low }) => low),
      high: keys.map(({ high }) => high),
      pathToken: cases.map(({ before }) => before.tokens.at(-1)!),
      pathRow: cases.map((_, row) => row),
    }).map(([name, values]) => [bufferOf(name), Float64Array.from(values)] as const),
  );
}

/** The call that takes these inputs. */
export function sampleSizes(inputs: Values): Extents {
  const rows = inputs.get('top_k')!.length;
  const M = Math.max(...inputs.get('mask_row')!) + 1;
  return { T: rows, R: rows, F: rows, E: inputs.get('entry_token')!.length, M };
}

/** What the oracle chooses, which knows tokens and options but no lists; 0 where no token has a probability above 0. */
export const oracleToken = ({ z, sampling, before }: SampleCase): number =>
  Math.max(0, oracleChoice(z, sampling, before, noiseKey(sampling.seed, before.tokens.length - 1)).token);
