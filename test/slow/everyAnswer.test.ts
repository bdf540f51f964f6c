/**
 * All of HellaSwag on this CPU in every sharing mode, and parts of it in other ways and by step: equal to the bit. Two
 * processors need an hour a model, six to nine minutes for each way with all questions; `vitest -t demo` runs one.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it } from 'vitest';
import { isBuilt, MAIN, ROOT, temporaryFolder, textOf } from '../e2e/support.js';
import {
  compareAnswers,
  compareLine,
  otherWays,
  SHARING_MODES,
  WHOLE,
  type Answers,
  type EveryAnswer,
} from '../support/everyAnswer.js';

const SHARED = join(ROOT, '..', 'shared');
const data = join(SHARED, 'data', 'hellaswag_val.jsonl.gz');
const QUESTIONS = 10_042;
/** For one pass over all questions on a busy machine, in milliseconds. */
const PATIENCE = 3_600_000;

describe.each(['demo', 'gqa-4m'])('answers of %s to all questions on a CPU', (name) => {
  const model = join(SHARED, 'checkpoints', name);
  const isAbsent = !existsSync(data) || !existsSync(model);
  if (isAbsent) process.stderr.write(`SKIPPED test/slow/everyAnswer: ${data} or ${model} is absent\n`);

  describe.skipIf(!isBuilt || isAbsent)('have the same bits', () => {
    const request: EveryAnswer = {
      model,
      data,
      target: 'cpu',
      stepQuestions: 300,
      run: async (flags) => {
        const out = temporaryFolder();
        const common = ['run', model, '--target', 'cpu', '--task', 'hellaswag', '--data', data, '--out', out];
        // Output is of no use here, and a reader would have to hold it.
        await promisify(execFile)(process.execPath, [MAIN, ...common, ...flags], { maxBuffer: 2 ** 28 });
        return textOf(out, 'samples');
      },
    };
    let wanted: Answers;
    beforeAll(async () => {
      const begin = performance.now();
      wanted = await WHOLE.answer(request);
      const seconds = (performance.now() - begin) / 1000;
      process.stdout.write(`${name}: ${WHOLE.what}: ${wanted.size} questions, ${seconds.toFixed(1)} s\n`);
    }, PATIENCE);

    it.each([...SHARING_MODES, ...otherWays('--docs', '0:2000')])('with $what', { timeout: PATIENCE }, async (way) => {
      const compared = await compareAnswers(way, request, wanted);
      process.stdout.write(`${name}: ${compareLine(compared)}\n`);
      if (SHARING_MODES.includes(way)) expect(compared.questions).toBe(QUESTIONS);
      expect(compared.others).toBe(0);
    });
  });
});
