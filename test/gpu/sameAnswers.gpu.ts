/** All of HellaSwag on a real device, in every sharing mode, in parts and by step: equal to the bit. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { cudaAvailable } from '../../runtime/cuda/addon.js';
import { compareEveryAnswer, printCompared } from '../support/everyAnswer.js';
import { readSamples, ROOT, tilewright } from './command.js';
import { archOf } from './launcher.js';
import { compilerOrReason, temporaryFolder } from './support.js';

const arch = archOf(cudaAvailable());
const compiler = typeof arch === 'string' ? await compilerOrReason(arch) : arch.reason;
const SHARED = join(ROOT, '..', 'shared');
const skip =
  typeof compiler === 'string'
    ? compiler
    : existsSync(join(SHARED, 'data'))
      ? false
      : `HellaSwag's questions: ${join('..', 'shared')} is not beside this folder`;

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
