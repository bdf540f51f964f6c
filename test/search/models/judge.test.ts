/** Scores of paths by real verifiers, against goldens of transformers in float64. Needs the data folder. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EngineJudge } from '../../../search/models/judge.js';
import { extend, type Path, rootOf, type Step } from '../../../search/path.js';
import { isBuilt, ROOT, temporaryFolder } from '../../e2e/support.js';
import { asComputed, type Golden, goldensOf, type VerifierName, VERIFIERS } from '../../support/verifiers.js';
import { isThorough } from '../../support/thorough.js';
import { SearchEngine, stubEnvironment } from './searchEngine.js';

const SHARED = join(ROOT, '..', 'shared');
const hasGoldens = existsSync(join(SHARED, 'golden', 'verifiers'));
const OFF = 1e-4;
const NEVER = new AbortController().signal;
const FAST: readonly VerifierName[] = ['rlhflow-prm'];

const stepOf = (text: string): Step => ({ text: `${text}\n\n`, tokens: [], end: 'step' });

function pathOf({ id, question, steps }: Golden): Path {
  const problem = { id: String(id), problem: question };
  return steps.reduce((path, step) => extend(path, stepOf(step)), rootOf(problem));
}

describe.skipIf(!hasGoldens || !isBuilt)('scores of paths', () => {
  beforeAll(stubEnvironment);

  describe.each(VERIFIERS.filter((name) => isThorough || FAST.includes(name)))('%s', (name) => {
    const goldens = goldensOf(SHARED, name).slice(0, isThorough ? undefined : 6);
    const engine = new SearchEngine();
    let judge: EngineJudge;
    beforeAll(async () => {
      judge = new EngineJudge(await engine.judge(asComputed(SHARED, name, temporaryFolder())), {});
    });
    afterAll(() => engine.close());

    it('are the golden ones', async () => {
      for (const golden of goldens) {
        const scores = await judge.score(pathOf(golden), [], NEVER);
        const off = golden.scores.map((score, i) => Math.abs(score - scores[i]!));
        expect([scores.length, Math.max(...off) < OFF]).toEqual([golden.scores.length, true]);
      }
    });
  });
});
