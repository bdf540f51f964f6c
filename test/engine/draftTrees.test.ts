/** Trees of drafts: how they lie in a step, and that texts are those without, wherever they leave the first chain. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Draft } from '../../draft/drafter.js';
import { acceptedNodes, cutTree, depthOf, endsWith, layOut, NO_DRAFTS, pathTo } from '../../engine/draftTree.js';
import { Engine } from '../../engine/engine.js';
import type { DraftBranches, StepMessage } from '../../engine/device.js';
import { requestsOf, STEMS, type Text, textsAlone, textsOf, tokensOf, treesOf } from '../support/draftedTexts.js';
import { mix, PATH_VOCAB, pathModel, type PathModelOptions, randomNumbers } from '../support/pathModel.js';

describe('a tree of drafts', () => {
  it('has its first chain first, and then branches, in each of which a token follows the one before it', () => {
    const draft = { tokens: [1, 2, 3, 4, 5, 6, 7], parents: [-1, 0, -1, 1, 0, 2, 4] };
    expect(layOut(draft, 15)).toEqual({
      tokens: [1, 2, 4, 3, 6, 5, 7],
      parents: [-1, 0, 1, -1, 3, 0, 5],
      chain: 3,
      branches: [
        { first: 3, end: 5, of: -1, depth: 0 },
        { first: 5, end: 7, of: -1, depth: 1 },
      ],
    });
    // The last is behind a branch.
    const { branches } = layOut({ tokens: [1, 2, 3, 4], parents: [-1, -1, 1, 1] }, 15);
    expect(branches).toEqual([
      { first: 1, end: 3, of: -1, depth: 0 },
      { first: 3, end: 4, of: 0, depth: 1 },
    ]);
    expect(layOut({ tokens: [] }, 15)).toBe(NO_DRAFTS);
    expect(layOut({ tokens: [8, 9] }, 15)).toEqual({ tokens: [8, 9], parents: [-1, 0], chain: 2, branches: [] });
  });

  it('has a token once behind another, with what follows either', () => {
    const { tokens, parents } = layOut({ tokens: [1, 1, 2, 3, 2], parents: [-1, -1, 0, 1, 1] }, 15);
    expect({ tokens, parents }).toEqual({ tokens: [1, 2, 3], parents: [-1, 0, 0] });
  });

  it('has the paths that were proposed, and keeps a text whole as far as it goes', () => {
    const nodes = fc.array(fc.tuple(fc.nat(3), fc.integer({ min: -1, max: 20 })), { maxLength: 15 });
    fc.assert(
      fc.property(nodes, fc.array(fc.nat(3), { maxLength: 18 }), (given, text) => {
        const draft: Draft = {
          tokens: given.map(([token]) => token),
          parents: given.map(([, p], i) => Math.min(p, i - 1)),
        };
        const all = { ...NO_DRAFTS, tokens: draft.tokens, parents: draft.parents! };
        const pathsOf = (tree: typeof all): ReadonlySet<string> =>
          new Set(tree.tokens.map((_, node) => pathTo(tree, node).join()));
        const tree = layOut(draft, 15);
        expect(pathsOf(tree)).toEqual(pathsOf(all));
        expect(new Set(tree.parents.slice(0, tree.chain).map((parent, node) => node - parent))).toEqual(
          new Set(tree.chain === 0 ? [] : [1]),
        );
        const ends = tree.branches.map(({ end }) => end);
        expect([tree.chain, ...ends].at(-1)).toBe(tree.tokens.length);
        tree.branches.forEach(({ first, end, of, depth }, b) => {
          expect(first).toBe(ends[b - 1] ?? tree.chain);
          expect(depthOf(tree, first)).toBe(depth + 1);
          for (let node = first + 1; node < end; node++) expect(tree.parents[node]).toBe(node - 1);
          const parent = tree.parents[first]!;
          const runOf = parent < tree.chain ? -1 : tree.branches.findIndex((run) => parent < run.end);
          expect(of).toBe(runOf);
        });
        // As far as the text goes along any path that was proposed, there are nodes for it.
        const nodesOf = acceptedNodes(tree, text, 0);
        const longest = text.findIndex((_, at) => !pathsOf(all).has(text.slice(0, at + 1).join()));
        expect(nodesOf.length).toBe(longest < 0 ? text.length : longest);
        nodesOf.forEach((node, i) => expect(endsWith(text.slice(0, i + 1), tree, node)).toBe(true));
        const cut = cutTree(tree, tree.chain, 1);
        expect(cut.tokens.length).toBe(tree.branches[0]?.end ?? tree.chain);
      }),
      { seed: 5 },
    );
  });
});

const WAYS: readonly (readonly [string, PathModelOptions])[] = [
  ['whose steps overlap', { limits: { keptRows: 64 } }],
  ['that takes few prompts apart', { limits: { keptRows: 64, besideTokens: 64, takesPromptsApart: true } }],
  ['in small steps', { limits: { tokens: 23, rows: 9, filtered: 5, entries: 400, keys: 300 } }],
  ['with few pages, whose steps overlap', { cacheTokens: 16 * 12, limits: { keptRows: 64, tokens: 40 } }],
  ['in a pipeline', { limits: { groups: 3 } }],
  ['whose device ends twice', { lostAt: new Set([7, 40]), limits: { keptRows: 64 } }],
  ['some of whose paths are not finite', { failsOneIn: 2000 }],
];

/** A model that says which branches it was given. */
function watched(options: PathModelOptions) {
  const model = pathModel(options);
  const branches: DraftBranches[] = [];
  const step = (message: StepMessage) => {
    if (message.branches !== undefined) branches.push(message.branches);
    return model.step(message);
  };
  return { model, engine: Engine.of({ ...model, step }), branches };
}

describe('drafts that branch', () => {
  it.each(WAYS)('change no text of a model %s', async (_name, options) => {
    const random = randomNumbers(7);
    const { failsOneIn = Infinity } = options;
    const requests = requestsOf(29, 6);
    const texts = await textsAlone(requests);
    for (const [right, chained] of [
      [0.85, 0.4],
      [0, 0.3],
    ] as const) {
      const { model, engine, branches } = watched(options);
      const drafted = requests.map((request, i) =>
        i % 4 === 3 ? request : { ...request, drafts: treesOf(tokensOf(texts[i]!), { random, right, chained }) },
      );
      const found = await Promise.allSettled(drafted.map((request) => engine.generate(request)));
      found.forEach((each, i) => {
        if (each.status === 'fulfilled')
          expect({ tokens: each.value.tokens, reason: each.value.reason }).toEqual(texts[i]);
        // Only what fails without drafts may fail with them.
        else expect([failsOneIn, each.reason]).toMatchObject([2000, { message: 'not finite' }]);
      });
      if (failsOneIn === Infinity) expect(await textsOf(engine, drafted.slice(0, 2))).toEqual(texts.slice(0, 2));
      expect(branches.length).toBeGreaterThan(0);
      // What branches were computed in, nobody has: a text that needs all pages can be had.
      const longest = Math.min(250, 16 * model.maxPages - 70, model.limits.keys - 70);
      expect((await engine.generate({ prompt: STEMS[2]!, maxNewTokens: longest })).reason).toBe('length');
    }
  });

  /** The right text along the last of `ways` runs. */
  const lastOf = (text: Text, prompt: readonly number[], ways: number, depth: number) => ({
    name: 'last',
    begin: () => ({
      propose: ({ tokens }: { readonly tokens: readonly number[] }): Draft => {
        const coming = text.tokens.slice(tokens.length - prompt.length, tokens.length - prompt.length + depth);
        const right = coming.map(({ token }) => token);
        const runs = Array.from({ length: ways }, (_, way) =>
          way === ways - 1 ? right : right.map((token, i) => (token + 1 + mix(way, i)) % PATH_VOCAB),
        );
        return {
          tokens: runs.flat(),
          parents: runs.flatMap((run, way) => run.map((_, i) => (i === 0 ? -1 : way * run.length + i - 1))),
        };
      },
    }),
  });

  it('make of each that is right a token, wherever it is, and compute again what they took of a branch', async () => {
    const request = { prompt: STEMS[0]!, maxNewTokens: 90 };
    const [text] = await textsAlone([request]);
    const model = pathModel();
    let count = 0;
    const ended = { ...request, endsAt: () => ++count === 61, drafts: lastOf(text!, request.prompt, 3, 3) };
    expect(await textsOf(Engine.of(model), [ended])).toEqual([{ tokens: text!.tokens.slice(0, 61), reason: 'stop' }]);
    // The first token comes with the prompt, then four with each step.
    expect(model.totals.steps).toBe(1 + 15);
    expect(model.totals.tokens).toBe(60 + 15 * (1 + 9) + 14 * 3);
  });

  it('never make a step of a text larger than one that kernels for going on take', async () => {
    const request = { prompt: STEMS[1]!, maxNewTokens: 100 };
    const [text] = await textsAlone([request]);
    const model = pathModel();
    const sizes: number[] = [];
    const step = (message: StepMessage) => {
      sizes.push(message.tokens.length);
      return model.step(message);
    };
    const texts = await textsOf(Engine.of({ ...model, step }), [
      { ...request, drafts: lastOf(text!, request.prompt, 2, 7) },
    ]);
    expect(texts).toEqual([text]);
    expect(Math.max(...sizes.slice(1))).toBe(16);
  });
});
