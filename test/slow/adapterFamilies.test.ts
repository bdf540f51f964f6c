/**
 * Adapters with random numbers of many kinds on many families: a run with the adapter, part of which rides and part of
 * which replaces tensors, against PEFT in float64, and against the ordinary path on a checkpoint that it was merged
 * into. Needs the data folder beside the repository.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { mergeAdapter } from '../../commands/mergeAdapter.js';
import { run } from '../../commands/run.js';
import { answersOf, environment, isBuilt, ROOT, temporaryFolder } from '../e2e/support.js';
import { ADAPTER_CASES, adapterSeed, caseName } from '../support/adapterCases.js';
import { ADAPTERS } from '../support/adapters.js';
import { writeRandomAdapter } from '../support/randomAdapters.js';
import peftValues from '../support/peftValues.json' with { type: 'json' };
import { quickCc } from '../support/runFolder.js';
import { SILENT } from '../support/silent.js';

const SHARED = join(ROOT, '..', 'shared');
const QUESTIONS = 4;
/** PEFT 0.21 passes over tensors of these, which earlier versions wrote for modules of transformers 4. */
const PEFT_CANNOT: ReadonlySet<string> = new Set(['qwen2-moe: all matrices']);

describe.skipIf(!existsSync(ADAPTERS) || !isBuilt)('adapters of many kinds', () => {
  beforeAll(() => {
    const cc = quickCc('-O1');
    for (const [name, value] of Object.entries(environment(cc === undefined ? {} : { TILEWRIGHT_CC: cc })))
      vi.stubEnv(name, value);
  });

  const answers = async (model: string, path?: string) => {
    const output = temporaryFolder();
    await run(
      {
        ...{ model, init: { kind: 'checkpoint' }, precision: 'f32', task: 'hellaswag', sharing: 'tree', threads: 2 },
        ...(path === undefined ? {} : { adapter: { name: 'made-up', path } }),
        ...{ data: join(SHARED, 'data', 'hellaswag_val.jsonl.gz'), limit: QUESTIONS, output, resume: false },
        batchTokens: 128,
      },
      SILENT,
    );
    return answersOf(output).flatMap(({ ll }) => ll);
  };

  it.each(ADAPTER_CASES)('%s: %s', async (base, what, asked) => {
    const model = join(SHARED, 'checkpoints', 'families', base);
    const [adapter, output] = ['adapter', 'merged'].map((name) => join(temporaryFolder(), name)) as [string, string];
    writeRandomAdapter(model, adapter, { seed: adapterSeed(base, what), ...asked });
    const adapted = await answers(model, adapter);
    const expectNear = (others: readonly number[], by: string): void => {
      expect(adapted).toHaveLength(others.length);
      const beyond = adapted.filter((value, i) => Math.abs(value - others[i]!) > 0.01 + 1e-4 * Math.abs(others[i]!));
      expect(beyond, `${by}\n${adapted.join(' ')}\n${others.join(' ')}`).toEqual([]);
    };
    const name = caseName(base, what);
    if (!PEFT_CANNOT.has(name)) expectNear((peftValues as Readonly<Record<string, number[]>>)[name] ?? [], 'PEFT');
    // Quantized checkpoints are not merged.
    if (!/mxfp4/.test(base)) {
      await mergeAdapter({ model, adapter, output, dtype: 'f32' }, SILENT);
      expectNear(await answers(output), 'merged');
    }
    // It matters, far more than by rounding.
    const plain = await answers(model);
    expect(adapted.filter((value, i) => Math.abs(value - plain[i]!) > 0.5).length).toBeGreaterThan(QUESTIONS);
  });
});
