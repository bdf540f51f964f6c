/**
 * Adapters that lines of a prompt file name: texts are those of a model that has one adapter, or none, whatever the
 * other lines name. Needs the data folder beside the repository.
 */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { generate, type GenerateRequest, type GenerateResult } from '../../commands/generate.js';
import type { WithTargetChoice } from '../../driver/precision.js';
import { openModel } from '../../library/index.js';
import type { ModelOptions } from '../../library/options.js';
import { environment, isBuilt, temporaryFolder } from '../e2e/support.js';
import { ADAPTERS, baseOf } from '../support/adapters.js';
import { SILENT } from '../support/silent.js';

const NAMES = ['mistral-qv', 'mistral-all-rs', 'mistral-layers'] as const;
const TEXTS = ['The sky is', 'Two and two make'] as const;
const named = NAMES.map((name) => ({ name, path: join(ADAPTERS, name) }));

describe.skipIf(!existsSync(ADAPTERS) || !isBuilt)('prompts that name adapters', () => {
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });

  const run = (more: Partial<WithTargetChoice<GenerateRequest>>): Promise<GenerateResult> =>
    generate(
      {
        ...{ model: baseOf('mistral-qv'), init: { kind: 'checkpoint' }, precision: 'f32', target: 'cpu', threads: 2 },
        ...{ batchTokens: 64, maxNewTokens: 12, ignoreEos: true, prompts: [], ...more },
      },
      SILENT,
    );
  const shown = ({ results }: GenerateResult) =>
    results.map((result) => ('error' in result ? result.error : { tokens: result.tokens, logProbs: result.logProbs }));

  it('get its texts, and the others those of the base', async () => {
    const lines = [...NAMES, undefined].flatMap((adapter) => TEXTS.map((prompt) => ({ prompt, adapter })));
    const file = join(temporaryFolder(), 'prompts.jsonl');
    writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
    const mixed = await run({ promptFile: file, named });
    expect(mixed.results.map(({ adapter }) => adapter)).toEqual(lines.map(({ adapter }) => adapter));
    const prompts = TEXTS.map((prompt) => ({ where: prompt, prompt: { prompt } }));
    const alone = [];
    for (const adapter of [...named, undefined]) {
      const { results } = await run({ prompts, ...(adapter === undefined ? {} : { named: [adapter] }) });
      expect(results.map(({ adapter: said }) => said)).toEqual([undefined, undefined]);
      alone.push(...shown({ results } as GenerateResult));
    }
    expect(shown(mixed)).toEqual(alone);
    expect(new Set(alone.map((text) => JSON.stringify(text)))).toHaveLength(lines.length);
  });

  it('are calls of a program as well', async () => {
    const place = {
      model: baseOf('mistral-qv'),
      target: 'cpu',
      precision: 'f32',
      threads: 2,
      batchTokens: 64,
    } as const;
    const asked = { prompts: [TEXTS[0]], maxNewTokens: 6, ignoreEos: true };
    const textOf = async (options: Partial<ModelOptions>, folder?: string): Promise<readonly number[]> => {
      const model = await openModel({ ...place, cacheTokens: 1024, ...options });
      try {
        const found: number[] = [];
        for await (const event of model.generate({ ...asked, ...(folder === undefined ? {} : { adapter: folder }) }))
          if (event.kind === 'end') found.push(...event.logProbs);
        return found;
      } finally {
        await model.close();
      }
    };
    const adapters = { slots: 2, rank: 16 };
    const { path } = named[0]!;
    const whole = await textOf({ adapter: path });
    expect(whole).toHaveLength(6);
    expect(await textOf({ adapters }, path)).toEqual(whole);
    expect(await textOf({ adapters })).not.toEqual(whole);
    await expect(textOf({}, path)).rejects.toThrow('without slots for adapters');
  });
});
