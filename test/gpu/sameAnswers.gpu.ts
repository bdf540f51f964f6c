/** All of HellaSwag on a real device, in every sharing mode, in parts and by step: equal to the bit. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { compareEveryAnswer, printCompared } from '../support/everyAnswer.js';
import { readSamples, tilewright } from './command.js';
import { deviceHere, SHARED, skipWithout } from './device.js';
import { temporaryFolder } from './support.js';

const device = await deviceHere();
const skip = skipWithout(device.skip, join(SHARED, 'data'), "HellaSwag's questions");

const data = join(SHARED, 'data', 'hellaswag_val.jsonl.gz');

describe('answers to all questions', { skip }, () => {
  for (const name of ['demo', 'gqa-4m']) {
    const model = join(SHARED, 'checkpoints', name);
    it(`have the same bits however they are computed: ${name}`, { skip: !existsSync(model) }, async () => {
      const compared = await compareEveryAnswer({
        model,
        data,
        target: 'cuda',
        stepQuestions: 1000,
        run: async (flags) => {
          const out = temporaryFolder();
          const common = ['run', model, '--target', 'cuda', '--task', 'hellaswag', '--data', data, '--out', out];
          await tilewright([...common, ...flags], 600);
          return readSamples(out);
        },
      });
      console.log(printCompared(name, compared));
      assert.deepEqual(
        compared.filter(({ others }) => others > 0).map(({ what }) => what),
        [],
        'ways that give other bits',
      );
    });
  }
});
