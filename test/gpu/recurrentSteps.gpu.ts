/**
 * Models with recurrent layers on a real device, of made-up weights: texts that go on from rows of states, beside
 * drafts and branches, get the bits of scoring, and so do questions whose beginnings are kept. Heads are as wide as
 * those of published models.
 */
import assert from 'node:assert/strict';
import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { beginLoading } from '../../commands/loadModel.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import { RECURRENT_FILES } from '../support/recurrentFiles.js';
import { SILENT } from '../support/silent.js';
import { checkQuestions } from '../support/walkedQuestions.js';
import { checkWalk } from '../support/walkedSteps.js';
import { DEMO } from './command.js';
import { deviceHere } from './device.js';
import { temporaryFolder } from './support.js';

const { skip } = await deviceHere();
const CACHE_TOKENS = 16 * 512;
const ASKED = { seed: 5, vocab: 1500, length: 150 };
const WIDER = {
  ...{ hidden_size: 512, intermediate_size: 1024, num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 2000 },
  max_position_embeddings: 1024,
};
const WIDE: Readonly<Record<keyof typeof RECURRENT_FILES, object>> = {
  'qwen3.5': {
    ...{ head_dim: 128, linear_num_key_heads: 4, linear_num_value_heads: 8 },
    ...{ linear_key_head_dim: 128, linear_value_head_dim: 128 },
  },
  lfm2: { head_dim: 128 },
  mamba2: { head_dim: 64, num_heads: 16, n_groups: 1, state_size: 128 },
};

describe('steps over rows of states', { skip }, () => {
  for (const [name, file] of Object.entries(RECURRENT_FILES))
    it(`give the bits of scoring: ${name}`, async () => {
      const folder = temporaryFolder();
      const path = join(folder, 'config.json');
      copyFileSync(join(DEMO, 'tokenizer.json'), join(folder, 'tokenizer.json'));
      writeFileSync(
        path,
        JSON.stringify({ ...file, ...WIDER, ...WIDE[name as keyof typeof WIDE], torch_dtype: 'bfloat16' }),
      );
      const request = {
        ...{ model: path, init: { kind: 'random' as const, seed: 3 } },
        ...{ cacheTokens: CACHE_TOKENS, batchTokens: 1024, feeds: true, threads: 2 },
        ...{ target: 'cuda' as const, precision: 'bf16' as const },
      };
      const model = await beginLoading(request, SILENT, new Phases()).finish();
      try {
        const device = deviceModelOf(model, CACHE_TOKENS, { feeds: true });
        for (const most of [300, 40, 9])
          assert.ok((await checkWalk(model, device, { seed: most, vocab: 1500, texts: 12, length: 90, most })) > 500);
        for (const [most, states] of [
          [512, 16],
          [50, 4],
        ] as const)
          assert.ok((await checkQuestions(model, CACHE_TOKENS, { ...ASKED, most, states })) > 40);
      } finally {
        await model.close();
      }
    });
});
