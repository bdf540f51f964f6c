/** Real tuning of a model that also generates: both functions are measured, and no answer changes. */
import { cpSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { stepBudget } from '../../commands/stepBudget.js';
import { loadArtifact } from '../../driver/artifact/load.js';
import { detectMachine } from '../../driver/targets/cpuDevice.js';
import { readSettings } from '../../settings.js';
import { isBuilt, ROOT, success, temporaryFolder, textOf, tilewright } from '../e2e/support.js';

interface Told {
  readonly functions: readonly { readonly name: string; readonly trials: number; readonly reused: number }[];
  readonly trials: number;
  readonly table: readonly string[];
  readonly isSaved: boolean;
}

describe.skipIf(!isBuilt)('tune of an artifact with a cache', () => {
  const folder = temporaryFolder();
  const [plain, tuned] = [join(folder, 'plain.tw'), join(folder, 'tuned.tw')];
  const database = join(folder, 'tuning.jsonl');
  const tune = async (budget: string): Promise<Told> => {
    const flags = ['--budget', budget, '--threads', '2', '--database', database, '--json'];
    return JSON.parse(success(await tilewright(['tune', tuned, ...flags])).stdout) as Told;
  };
  const generated = async (artifact: string): Promise<readonly unknown[]> => {
    const prompts = ['The man walks into the room and', 'She takes a knife'];
    const flags = ['--max-new-tokens', '40', '--n', '3', '--temperature', '1', '--json'];
    const { stdout } = success(await tilewright(['generate', artifact, ...prompts, ...flags]));
    return stdout
      .trim()
      .split('\n')
      .map((line) => {
        const { text, tokens, logprobs } = JSON.parse(line) as Readonly<Record<string, unknown>>;
        expect(tokens).toBeDefined();
        expect(logprobs).toBeDefined();
        return { text, tokens, logprobs };
      });
  };
  const scored = async (artifact: string): Promise<string> => {
    const out = temporaryFolder();
    const data = join(ROOT, 'examples/everyday.jsonl');
    success(await tilewright(['run', artifact, '--task', 'hellaswag', '--data', data, '--limit', '8', '--out', out]));
    return textOf(out, 'samples');
  };

  beforeAll(async () => {
    const flags = ['--batch-tokens', '128', '--cache-tokens', '1024'];
    success(await tilewright(['compile', join(ROOT, 'models/demo'), '-o', plain, ...flags]));
    cpSync(plain, tuned, { recursive: true });
  });

  test('measures both functions, keeps all bits, and finds again what it knows', async () => {
    const first = await tune('20s');
    expect(first.functions.map(({ name }) => name)).toEqual(['score', 'step']);
    expect(first.trials).toBe(first.functions.reduce((sum, { trials }) => sum + trials, 0));
    // Products of score and step that are alike are measured once.
    expect(first.functions[1]!.reused).toBeGreaterThan(0);
    expect(first.table.join('\n')).toMatch(/^score: /m);
    expect(first.table.join('\n')).toMatch(/^step: layers.0.attention.mix/m);
    const again = await tune('20s');
    expect(again.isSaved).toBe(true);
    for (const [i, { reused }] of again.functions.entries())
      expect(reused).toBeGreaterThanOrEqual(first.functions[i]!.trials / 2);
    expect(readFileSync(join(tuned, 'plan.json'), 'utf8')).not.toBe(readFileSync(join(plain, 'plan.json'), 'utf8'));
    expect(await generated(tuned)).toEqual(await generated(plain));
    expect(await scored(tuned)).toBe(await scored(plain));

    const { plan } = (await loadArtifact(tuned, detectMachine())).model;
    const step = plan.functions.find((fn) => fn.interface.name === 'step')!;
    const rates = step.bucketSeconds!.map(({ extents, seconds }) => ({
      tokens: extents['T']!,
      rate: extents['T']! / seconds,
    }));
    const best = Math.max(...rates.map(({ rate }) => rate));
    const wanted = rates.find(({ rate }) => rate >= 0.9 * best)!.tokens;
    expect(stepBudget(plan, readSettings({}))).toBe(wanted);
  });
});
