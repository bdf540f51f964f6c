/** The techniques of the benchmark: equal answers, and the tokens, calls and memory that each is meant to take. */
import { describe, expect, it } from 'vitest';
import { differences, scoreAll } from '../../bench/ablation.js';
import { techniquesOf } from '../../bench/ablationTechniques.js';
import { withoutLabel } from '../../bench/inputs.js';
import { countTokens, pathsOf } from '../../evaluate/pathOrder.js';
import type { TokenizedQuestion } from '../../evaluate/tokenize.js';
import { measureTree } from '../../evaluate/tree.js';
import { fakePathScorer } from '../evaluate/support/fakePathScorer.js';
import { fakeScorer, referenceScore } from '../evaluate/support/fakeScorer.js';

/** Contexts of eight tokens and more, of which eight are common to all; choices of one to four tokens. */
const questions: readonly TokenizedQuestion[] = Array.from({ length: 30 }, (_, docId) => ({
  docId,
  context: Int32Array.from([1, 2, 3, 4, 5, 6, 7, 8, ...Array.from({ length: docId % 5 }, () => 100 + docId)]),
  continuations: [1, 2, 3, 4].map((length) =>
    Int32Array.from({ length }, (_token, i) => 10 * (docId % 3) + length + i),
  ),
}));
/** Two tokens fewer each. */
const unlabelled = questions.map((question) => ({ ...question, context: question.context.slice(2) }));
const contextTokens = (set: readonly TokenizedQuestion[]): number => measureTree(pathsOf(set), 'context').tokens;

it('techniques give the same bits, and compute the tokens that they share no longer', async () => {
  const paths = fakePathScorer({ tokens: 64, cacheRows: 128 });
  const lane = await paths.open(0);
  let held = 0;
  let allocated = 0;
  const engine = {
    scorer: fakeScorer(),
    lane,
    limits: paths.limits,
    // The last layer takes a millisecond less than the one before.
    profile: async (batch: Parameters<typeof lane.score>[0]) => {
      await lane.score(batch);
      return [4, 4, 3].map((milliseconds, layer) => ({
        path: `layers.${layer}.ffn.down`,
        nanoseconds: milliseconds * 1e6,
      }));
    },
    allocate: (tokens: number) => {
      held++;
      allocated += tokens;
      return { release: () => void held-- };
    },
  };
  const techniques = techniquesOf({
    engine,
    questions,
    unlabelled,
    options: { sequences: 4, prefill: 20 },
  });
  const passes = [];
  for (const technique of techniques) passes.push(await scoreAll(technique, 2));
  const [trees] = passes;
  const own = techniques.map((technique) => technique.questions === questions);
  for (const { logProbs } of passes.filter((_, i) => own[i])) expect(logProbs).toEqual(trees!.logProbs);
  const ends = pathsOf(questions).map(({ context, continuation }) => referenceScore(context, continuation).ll);
  let at = 0;
  const sums = pathsOf(questions).map(({ continuation: { length } }) =>
    trees!.logProbs.subarray(at, (at += length)).reduce((sum, each) => sum + each, 0),
  );
  sums.forEach((sum, i) => expect(sum).toBeCloseTo(ends[i]!, 3));

  const { alone, shared } = countTokens(pathsOf(questions));
  const contexts = contextTokens(questions);
  const kept = passes.at(-2)!.tokens;
  expect(passes.map(({ tokens }) => tokens)).toEqual([
    trees!.tokens,
    alone,
    alone,
    contexts,
    contexts,
    contextTokens(unlabelled),
    contexts,
    contexts,
    contexts,
    contexts,
    kept,
    passes.at(-1)!.tokens,
  ]);
  expect(trees!.tokens).toBeLessThan(contexts);
  expect(trees!.tokens).toBeGreaterThanOrEqual(shared);
  expect(kept).toBeLessThan(1.2 * shared);
  expect(own.filter((isOwn) => !isOwn)).toHaveLength(2);
  // 120 choices, four a call.
  expect(passes[1]!.calls).toBe(30);
  // Every token of both phases has memory once, and none is left.
  expect([allocated, held]).toEqual([contexts, 0]);
  const filled = passes[4]!.calls;
  for (let round = 0; round < 2; round++) expect(await techniques[7]!.added!()).toBeCloseTo(filled / 1000, 9);
});

it('leaves out labels, and nothing else', () => {
  const question = { docId: 0, context: 'Roof: a man: sits', choices: [], gold: 0, delimiter: ' ' };
  expect(withoutLabel({ ...question, doc: { activity_label: 'Roof' } }).context).toBe('a man: sits');
  expect(withoutLabel({ ...question, doc: { activity_label: 'Roo' } }).context).toBe('Roof: a man: sits');
  expect(withoutLabel({ ...question, doc: {} }).context).toBe('Roof: a man: sits');
});

describe('a pass of a technique', () => {
  const questions = [
    { docId: 0, context: Int32Array.of(1), continuations: [Int32Array.of(2, 3), Int32Array.of(4)] },
    { docId: 1, context: Int32Array.of(5), continuations: [Int32Array.of(6)] },
  ];

  it('puts log-probabilities in the order of the questions, whatever the order of calls', async () => {
    const rows = [
      [-4, 1, 0, 0],
      [-2, 0, 0, 1],
      [-3, 0, 1, 0],
      [-1, 0, 0, 0],
    ] as const;
    const calls = rows.map(([logProb, question, choice, index]) => ({
      tokens: 10,
      scored: [{ row: 0, question, choice, index }],
      score: () => Promise.resolve({ logProb: Float32Array.of(logProb), isArgmax: Int32Array.of(0) }),
    }));
    const pass = await scoreAll({ name: 'any', questions, calls: () => calls }, 2);
    expect(pass).toMatchObject({ tokens: 40, calls: 4, logProbs: Float32Array.of(-1, -2, -3, -4) });
    const missing = await scoreAll({ name: 'any', questions, calls: () => calls.slice(1) }, 2);
    expect(differences(pass.logProbs, missing.logProbs)).toBe(1);
  });

  it('compares bits', () => {
    const a = Float32Array.of(-1, -2, 0);
    expect(differences(a, a.slice())).toBe(0);
    expect(differences(a, Float32Array.of(-1, -2.0000002, -0))).toBe(2);
    expect(differences(Float32Array.of(NaN), Float32Array.of(NaN))).toBe(1);
  });
});
