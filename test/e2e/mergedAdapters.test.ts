/**
 * Models with the adapters that PEFT wrote merged into them, against log-likelihoods that PEFT computed in float64.
 * Needs the data folder beside the repository.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { mergeAdapter } from '../../commands/mergeAdapter.js';
import { run } from '../../commands/run.js';
import { quickCc } from '../support/runFolder.js';
import { SILENT } from '../support/silent.js';
import { casesHere, isThorough } from '../support/thorough.js';
import { environment, isBuilt, ROOT, temporaryFolder } from './support.js';

const SHARED = join(ROOT, '..', 'shared');
const ADAPTERS = join(SHARED, 'checkpoints', 'adapters');
const names = existsSync(ADAPTERS) ? readdirSync(ADAPTERS).sort() : [];
const questions = isThorough ? 120 : 4;

describe.skipIf(names.length === 0 || !isBuilt)('merged adapters', () => {
  beforeAll(() => {
    const cc = quickCc();
    for (const [name, value] of Object.entries(environment(cc === undefined ? {} : { TILEWRIGHT_CC: cc })))
      vi.stubEnv(name, value);
  });

  it.each(casesHere(names, names.indexOf('qwen2-dora')))('%s gives what PEFT gives', async (name) => {
    const adapter = join(ADAPTERS, name);
    const { base_model_name_or_path: base } = JSON.parse(
      readFileSync(join(adapter, 'adapter_config.json'), 'utf8'),
    ) as {
      readonly base_model_name_or_path: string;
    };
    const output = join(temporaryFolder(), 'merged');
    await mergeAdapter({ model: join(SHARED, 'checkpoints', base), adapter, output, dtype: 'f32' }, SILENT);
    const { samplesPath } = await run(
      {
        model: output,
        init: { kind: 'checkpoint' },
        precision: 'f32',
        task: 'hellaswag',
        data: join(SHARED, 'data', 'hellaswag_val.jsonl.gz'),
        sharing: 'tree',
        threads: 2,
        limit: questions,
        output: temporaryFolder(),
        resume: false,
        batchTokens: 128,
      },
      SILENT,
    );
    const golden = join(SHARED, 'golden', 'lora', `${name}.jsonl`);
    const checker = join(SHARED, 'check', 'compare-golden.mjs');
    const { status, stdout, stderr } = spawnSync(process.execPath, [checker, samplesPath!, golden], {
      encoding: 'utf8',
    });
    expect({ status, stdout, stderr }).toMatchObject({ status: 0, stderr: '' });
    expect(stdout).toMatch(new RegExp(`^${questions} questions, `));
  });
});
