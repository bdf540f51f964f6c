/** Scores of paths by real verifiers, against goldens of transformers in float64. Needs the data folder. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EngineJudge, type JudgeModel } from '../../../search/models/judge.js';
import { EngineWriter } from '../../../search/models/writer.js';
import { extend, type Path, rootOf, type Step } from '../../../search/path.js';
import { isBuilt, ROOT, temporaryFolder } from '../../e2e/support.js';
import { asComputed, type Golden, goldensOf, type VerifierName, VERIFIERS } from '../../support/verifiers.js';
import { isThorough } from '../../support/thorough.js';
import { NEVER, stepAsk } from './madeUpEngine.js';
import { SearchEngine, stubEnvironment } from './searchEngine.js';

const SHARED = join(ROOT, '..', 'shared');
const hasGoldens = existsSync(join(SHARED, 'golden', 'verifiers'));
const OFF = 1e-4;
const FAST: readonly VerifierName[] = ['rlhflow-prm'];

const stepOf = (text: string): Step => ({ text: `${text}\n\n`, tokens: [], end: 'step' });

function pathOf({ id, question, steps }: Golden): Path {
  const problem = { id: String(id), problem: question };
  return steps.reduce((path, step) => extend(path, stepOf(step)), rootOf(problem));
}

/** An answer that was drawn at once, as the goldens of answers have it. */
const answerOf = ({ id, question, steps }: Golden): Path =>
  extend(rootOf({ id: String(id), problem: question }), { text: steps.join('\n'), tokens: [], end: 'eos' });

const prefixes = (path: Path): Path[] => (path.parent === undefined ? [] : [...prefixes(path.parent), path]);

describe.skipIf(!hasGoldens || !isBuilt)('scores of paths', () => {
  beforeAll(stubEnvironment);

  describe.each(VERIFIERS.filter((name) => isThorough || FAST.includes(name)))('%s', (name) => {
    const goldens = goldensOf(SHARED, name).slice(0, isThorough ? undefined : 6);
    const engine = new SearchEngine();
    let model: JudgeModel;
    beforeAll(async () => {
      model = await engine.judge(asComputed(SHARED, name, temporaryFolder()));
    });
    afterAll(() => engine.close());

    it('are the golden ones, and the same bits step by step', async () => {
      const judge = await EngineJudge.open(model, {});
      for (const golden of goldens) {
        const path = judge.kind === 'outcome' ? answerOf(golden) : pathOf(golden);
        const scores = await new EngineJudge(model, {}).score(path, [], NEVER);
        const off = golden.scores.map((score, i) => Math.abs(score - scores[i]!));
        expect([scores.length, Math.max(...off) < OFF]).toEqual([golden.scores.length, true]);
        for (const each of prefixes(path))
          expect(await judge.score(each, [], NEVER)).toEqual(scores.slice(0, each.depth));
      }
      const { askedTokens, foundTokens, neededTokens } = judge.counts;
      // All of it was in pages: of each text the last token alone is computed again.
      expect(askedTokens - foundTokens).toBeLessThan(neededTokens);
    });
  });
});

describe.skipIf(!hasGoldens || !isBuilt || !isThorough)('another tokenizer', () => {
  it('of the generator gives the verifier texts', async () => {
    stubEnvironment();
    const engine = new SearchEngine();
    const writer = new EngineWriter(await engine.writer(join(ROOT, 'models', 'demo')), {
      stepTokens: 7,
      system: 'none',
    });
    const judge = await EngineJudge.open(await engine.judge(join(SHARED, 'checkpoints', 'verifiers', 'rlhflow-prm')), {
      stepTokens: 7,
    });
    let path = rootOf({ id: '0', problem: 'Two and two make' });
    const seen: (readonly number[])[] = [];
    for (let i = 0; i < 6; i++) {
      path = extend(path, await writer.write(stepAsk(path, { seed: i })));
      seen.push(await judge.score(path, [], NEVER));
    }
    expect(seen.map(({ length }) => length)).toEqual([1, 2, 3, 4, 5, 6]);
    seen.forEach((scores, i) => expect(seen.at(-1)!.slice(0, i + 1)).toEqual(scores));
    await engine.close();
  });
});
