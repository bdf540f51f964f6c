/** Drafters that propose anything, under a clock that says anything: steps change their ways, and texts do not. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Draft, Drafter, DraftText } from '../../draft/drafter.js';
import { Engine } from '../../engine/engine.js';
import type { Generated, GenerateRequest } from '../../engine/request.js';
import type { ModelDrafts } from '../../engine/speculation.js';
import { mix, PATH_VOCAB, pathModel, type PathModelOptions, randomNumbers } from '../support/pathModel.js';
import { casesHere } from '../support/thorough.js';

afterEach(() => {
  vi.restoreAllMocks();
});

const STEM = Array.from({ length: 40 }, (_, i) => mix(8, i) % PATH_VOCAB);
const SAMPLINGS: readonly GenerateRequest['sampling'][] = [
  {},
  { temperature: 0.7, seed: 3 },
  { temperature: 1, seed: 5, topP: 0.9, topK: 20 },
  { repetitionPenalty: 1.3, frequencyPenalty: 0.2 },
  { temperature: 1, seed: 9, presencePenalty: 0.5, topLogProbs: 3 },
];

function requestsOf(seed: number, count: number): readonly GenerateRequest[] {
  const random = randomNumbers(seed);
  const below = (most: number): number => Math.floor(random() * most);
  return Array.from({ length: count }, (_, i) => ({
    prompt: [i, ...STEM.slice(0, below(40)), ...Array.from({ length: below(20) }, () => below(PATH_VOCAB))],
    maxNewTokens: 20 + below(40),
    sampling: SAMPLINGS[i % SAMPLINGS.length]!,
    ...(below(3) === 0 ? { stopTokens: new Set([below(PATH_VOCAB), below(PATH_VOCAB)]), minNewTokens: below(20) } : {}),
  }));
}

const textOf = ({ tokens, reason }: Generated) => ({ tokens, reason });

type Proposal = (text: DraftText, most: number, right: readonly number[]) => Draft;

/** A drafter that knows what comes. */
const knowing = (texts: ReadonlyMap<number, readonly number[]>, propose: Proposal): Drafter => ({
  name: 'hostile',
  begin: ({ tokens: [id], promptLength }) => ({
    propose: (text, most) => {
      if (text.tokens.some((token) => token < 0)) throw new Error('a token that is not known');
      return propose(text, most, texts.get(id!)!.slice(text.tokens.length - promptLength));
    },
  }),
});

const random = randomNumbers(77);
const below = (most: number): number => Math.floor(random() * most);

const HOSTILE: Readonly<Record<string, Proposal>> = {
  'are random': (_, most) => ({ tokens: Array.from({ length: most }, () => below(PATH_VOCAB)) }),
  'are always wrong, and said to be right': (_, most, right) => ({
    tokens: Array.from({ length: most }, (_each, i) => ((right[i] ?? 0) + 1) % PATH_VOCAB),
    chances: Array.from({ length: most }, () => 1),
  }),
  'are always right, and go on past every end': (_, most, right) => ({
    tokens: Array.from({ length: most + 30 }, (_each, i) => right[i] ?? 5),
  }),
  'are right at times': (_, most, right) => ({
    tokens: right.slice(0, most).map((token) => (random() < 0.8 ? token : below(PATH_VOCAB))),
    chances: Array.from({ length: most }, random),
  }),
  'are trees without sense': (_, most, right) => ({
    tokens: Array.from({ length: most + 9 }, (_each, i) => (random() < 0.6 ? (right[i % 4] ?? 3) : below(120) - 9)),
    parents: Array.from({ length: most + 9 }, (_each, i) => (random() < 0.1 ? NaN : below(i + 2) - 1)),
    chances: Array.from({ length: most + 9 }, () => 3 * random() - 1),
  }),
  'are trees with what comes': (_, most, right) => {
    const tokens = right.slice(0, 5).flatMap((token) => [below(PATH_VOCAB), token]);
    const parents = tokens.map((_each, i) => (i < 2 ? -1 : 2 * Math.floor(i / 2) - 1));
    return {
      tokens: tokens.slice(0, most),
      parents: parents.slice(0, most),
      chances: tokens.slice(0, most).map(random),
    };
  },
  'are none, now and then': (_, most, right) => ({ tokens: random() < 0.5 ? [] : right.slice(0, below(most + 1)) }),
};

const MODELS: readonly (readonly [string, PathModelOptions])[] = [
  ['whose steps overlap', { limits: { keptRows: 64 } }],
  ['that plans nothing ahead', {}],
  ['with few pages, whose steps overlap', { cacheTokens: 16 * 14, limits: { keptRows: 64, tokens: 40 } }],
  ['whose device ends', { lostAt: new Set([9, 31]), limits: { keptRows: 64 } }],
  ['in a pipeline', { limits: { groups: 3, tokens: 60 } }],
];

/** A clock that goes on by anything from nothing to a second. */
function useStrangeClock(seed: number): void {
  const ticks = randomNumbers(seed);
  let now = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => (now += ticks() < 0.5 ? ticks() : 1000 * ticks() ** 6));
}

describe.each(casesHere(Object.entries(HOSTILE), 0, 1, 4))('drafts that %s', (_kind, propose) => {
  it('change no text, however many are taken', async () => {
    const requests = requestsOf(31, 6);
    const expected: ReturnType<typeof textOf>[] = [];
    for (const request of requests) expected.push(textOf(await Engine.of(pathModel()).generate(request)));
    const texts = new Map(requests.map(({ prompt }, i) => [prompt[0]!, expected[i]!.tokens.map(({ token }) => token)]));
    for (const [at, [name, options]] of MODELS.entries())
      for (const tokens of ['auto', 3] as const) {
        useStrangeClock(at);
        const engine = new Engine();
        const drafts: ModelDrafts = { drafter: knowing(texts, propose), tokens };
        engine.load('model', { replicas: [pathModel(options)], vocabSize: PATH_VOCAB, drafts });
        const found = await Promise.all(requests.map((request) => engine.generate(request)));
        expect(found.map(textOf), `a model ${name}, ${tokens}`).toEqual(expected);
        // All pages are back.
        expect(engine.statsOf()).toMatchObject({ running: 0, waiting: 0, heldPages: 0 });
        await engine.close();
      }
  });
});

it('a drafter that throws while it watches ends its text, and no other', async () => {
  useStrangeClock(3);
  const engine = new Engine();
  let asked = 0;
  const drafter: Drafter = {
    name: 'throws',
    begin: ({ tokens: [id] }) => ({
      propose: ({ tokens }) => {
        asked++;
        if (id === 1 && tokens.length > 20) throw new Error('no idea');
        return { tokens: [] };
      },
      end: () => {
        throw new Error('nor at the end');
      },
    }),
  };
  const model = pathModel({ limits: { keptRows: 64 } });
  engine.load('model', { replicas: [model], vocabSize: PATH_VOCAB, drafts: { drafter, tokens: 'auto' } });
  const [good, bad] = await Promise.allSettled(
    [2, 1].map((id) => engine.generate({ prompt: [id, ...STEM.slice(0, 9)], maxNewTokens: 40 })),
  );
  expect(bad).toMatchObject({ status: 'rejected', reason: { message: 'no idea' } });
  const alone = await Engine.of(pathModel()).generate({ prompt: [2, ...STEM.slice(0, 9)], maxNewTokens: 40 });
  expect(good).toMatchObject({ status: 'fulfilled', value: { tokens: alone.tokens } });
  expect(asked).toBeGreaterThan(20);
  expect(engine.statsOf()).toMatchObject({ running: 0, heldPages: 0 });
});
