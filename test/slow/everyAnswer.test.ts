/** All of HellaSwag on this CPU, in every sharing mode, in parts and by step: equal to the bit. Takes five minutes. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { isBuilt, MAIN, ROOT, temporaryFolder, textOf } from '../e2e/support.js';
import { compareEveryAnswer, printCompared } from '../support/everyAnswer.js';

const model = join(ROOT, 'models', 'demo');
const data = join(ROOT, '..', 'shared', 'data', 'hellaswag_val.jsonl.gz');
const isAbsent = !existsSync(data);
if (isAbsent) process.stderr.write(`SKIPPED test/slow/everyAnswer: ${data} is absent\n`);

describe.skipIf(!isBuilt || isAbsent)('answers to all questions on a CPU', () => {
  it('have the same bits however they are computed', { timeout: 3_600_000 }, async () => {
    const compared = await compareEveryAnswer({
      model,
      data,
      target: 'cpu',
      stepQuestions: 300,
      run: async (flags) => {
        const out = temporaryFolder();
        const common = ['run', model, '--target', 'cpu', '--task', 'hellaswag', '--data', data, '--out', out];
        await promisify(execFile)(process.execPath, [MAIN, ...common, ...flags]);
        return textOf(out, 'samples');
      },
    });
    process.stdout.write(`${printCompared('demo', compared)}\n`);
    expect(compared.filter(({ others }) => others > 0).map(({ what }) => what)).toEqual([]);
  });
});
