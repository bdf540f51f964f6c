/** Requests of all kinds to a made-up model, what comes of each alone and without drafts, and drafts of that. */
import type { Draft, Drafter } from '../../draft/drafter.js';
import { Engine } from '../../engine/engine.js';
import type { Generated, GenerateRequest } from '../../engine/request.js';
import { mix, PATH_VOCAB, pathModel, randomNumbers } from './pathModel.js';

export const STEMS = [1, 2, 3].map((seed) => Array.from({ length: 60 }, (_, i) => mix(seed, i) % PATH_VOCAB));

/** Greedy, drawn, filtered, with penalties, with tokens that come late; some begin alike. */
export function requestsOf(seed: number, count: number): readonly GenerateRequest[] {
  const random = randomNumbers(seed);
  const below = (most: number): number => Math.floor(random() * most);
  return Array.from({ length: count }, (_, i) => {
    const own = Array.from({ length: 1 + below(20) }, () => below(PATH_VOCAB));
    const stops = { stopTokens: new Set(Array.from({ length: 6 }, () => below(PATH_VOCAB))) };
    const sampling = [
      {},
      { temperature: 0.7, seed: 3 },
      { temperature: 1, seed: i, topP: 0.9, topK: 20 },
      { repetitionPenalty: 1.3, frequencyPenalty: 0.2 },
      { temperature: 1.1, seed: i, presencePenalty: 0.5, topLogProbs: 3 },
    ][below(5)]!;
    return {
      prompt: [...STEMS[below(3)]!.slice(0, below(50)), ...own],
      maxNewTokens: 1 + below(60),
      sampling,
      ...(below(2) === 0 ? stops : {}),
      ...(below(3) === 0 ? { ...stops, minNewTokens: below(30) } : {}),
    };
  });
}

export const textOf = ({ tokens, reason }: Generated) => ({ tokens, reason });
export type Text = ReturnType<typeof textOf>;

export const textsOf = async (engine: Engine, requests: readonly GenerateRequest[]): Promise<readonly Text[]> =>
  (await Promise.all(requests.map((request) => engine.generate(request)))).map(textOf);

export async function textsAlone(requests: readonly GenerateRequest[]): Promise<readonly Text[]> {
  const texts: Text[] = [];
  for (const request of requests) texts.push(...(await textsOf(Engine.of(pathModel()), [request])));
  return texts;
}

export interface TreeOptions {
  readonly random: () => number;
  /** How often a node is right that can be. */
  readonly right: number;
  /** How often a node continues the one before it. */
  readonly chained: number;
  /** Wrong drafts are below this. */
  readonly vocab?: number;
}

/** The tokens of a text. */
export const tokensOf = ({ tokens }: Pick<Generated, 'tokens'>): readonly number[] => tokens.map(({ token }) => token);

/** Trees at random, in which the text goes some way: along the chain, or along branches. `text`: what is generated. */
export const treesOf = (
  text: readonly number[],
  { random, right, chained, vocab = PATH_VOCAB }: TreeOptions,
): Drafter => ({
  name: 'trees',
  begin: ({ promptLength }) => ({
    propose: ({ tokens }, most): Draft => {
      const coming = text.slice(tokens.length - promptLength);
      const parents: number[] = [];
      /** Of each node how many drafts of the text end with it; 0: it is none of it. */
      const lengths: number[] = [];
      const drafted: number[] = [];
      for (let node = 0; node < most; node++) {
        const parent = random() < chained ? node - 1 : Math.floor(random() * (node + 1)) - 1;
        const before = parent < 0 ? 0 : lengths[parent]!;
        const isRight = (parent < 0 || before > 0) && before < coming.length && random() < right;
        parents.push(parent);
        lengths.push(isRight ? before + 1 : 0);
        drafted.push(isRight ? coming[before]! : Math.floor(random() * vocab));
      }
      return { tokens: drafted, parents };
    },
  }),
});
