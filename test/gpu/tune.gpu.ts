/**
 * Tuning on a real device, from artifact to answers: kernels compete within their layer, and answers stay as close to
 * float64.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { DEMO, EXAMPLES, readSamples, tilewright } from './command.js';
import { deviceHere } from './device.js';
import { compareGolden, EVERYDAY } from './golden.js';
import { temporaryFolder } from './support.js';

const { skip } = await deviceHere();

/** Much of it goes into compiling the first candidates of all kernels. */
const BUDGET_SECONDS = 40;

describe('tune', { skip }, () => {
  it('holds finals within a layer, records them, and leaves an artifact that answers as it should', async () => {
    const folder = temporaryFolder();
    const artifact = join(folder, 'demo.tw'),
      database = join(folder, 'tuning.jsonl'),
      out = join(folder, 'out');
    await tilewright(['compile', DEMO, '--target', 'cuda', '-o', artifact]);
    const told = await tilewright(['tune', artifact, '--budget', `${BUDGET_SECONDS}s`, '--database', database]);
    assert.doesNotMatch(told, /no final can be held/);
    const finals = readFileSync(database, 'utf8')
      .split('\n')
      .filter((line) => line.includes('"final"'));
    assert(finals.length > 0, `no final was held:\n${told.slice(-1500)}`);
    await tilewright(['run', artifact, '--task', 'hellaswag', '--data', EXAMPLES, '--out', out]);
    const { questions, error, others, turnedBy } = compareGolden(
      readSamples(out),
      readFileSync(join(import.meta.dirname, 'golden', 'everyday-demo.jsonl'), 'utf8'),
    );
    console.log(
      `${finals.length} finals; ${questions} questions, mean error ${error.toFixed(4)}, ` +
        `${others} chosen differently by errors of ${turnedBy.toFixed(3)}`,
    );
    assert(
      error <= EVERYDAY.error && others <= 1 && turnedBy <= EVERYDAY.turnedBy,
      'the tuned artifact is further from float64 than it may be',
    );
  });
});
