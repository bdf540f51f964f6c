/** What /metrics says of adapters: names of clients for the hashes of engines. */
import { describe, expect, it, vi } from 'vitest';
import { Engine } from '../../../engine/engine.js';
import type { AdapterStats, ModelStats } from '../../../engine/modelStats.js';
import { readMetrics } from '../../../route/proxy/metricsText.js';
import { AdapterNames } from '../../../serve/adapters/names.js';
import { ServerMetrics } from '../../../serve/metrics/serverMetrics.js';
import type { ModelClient, ServedModel } from '../../../serve/models.js';
import { counting } from '../../engine/counting.js';

const [A, B, GONE] = ['a', 'b', 'c'].map((digit) => digit.repeat(64)) as [string, string, string];
const facts = (hash: string, rank: number) => ({ hash, path: `/adapters/${hash[0]}`, rank });

function made(adapters?: AdapterStats): { readonly metrics: ServerMetrics; readonly names: AdapterNames } {
  const base = { key: 'm0', names: ['demo', 'other'], maxLength: 100, fingerprint: 'f' } as unknown as ServedModel;
  const verifier = { ...base, key: 'm1', names: ['judge'] };
  const names = new AdapterNames(
    base,
    ['demo', 'other', 'judge'],
    { open: () => Promise.resolve(facts(B, 64)), release: () => Promise.resolve() },
    {
      allowsUpdates: true,
      given: [
        { name: 'sql', facts: facts(A, 8) },
        { name: 'also, "sql"', facts: facts(A, 8) },
        { name: 'idle', facts: facts(B, 64) },
      ],
    },
  );
  const plain = Engine.of(counting({ cacheTokens: 160 }).model).statsOf();
  const stats: readonly ModelStats[] = [{ ...plain, ...(adapters && { adapters }) }, plain];
  const client: ModelClient = {
    get models() {
      return [base, verifier, ...names.models];
    },
    ...{ adapters: names, stats: () => Promise.resolve(stats), checkGrammar: () => Promise.resolve() },
    submit: () => {
      throw new Error('nothing is asked');
    },
  };
  return { metrics: new ServerMetrics(client), names };
}

const STATS: AdapterStats = {
  ...{ slots: 4, rank: 64, loads: 5, failures: 0, evictions: 1 },
  adapters: [
    { hash: A, loaded: 1, running: 2, waiting: 1 },
    { hash: B, loaded: 2, running: 0, waiting: 0 },
    { hash: GONE, loaded: 0, running: 0, waiting: 3 },
  ],
};

const linesOf = async (metrics: ServerMetrics): Promise<readonly string[]> =>
  (await metrics.text()).split('\n').filter((line) => /^vllm:\w*lora/.test(line));

describe('adapters in /metrics', () => {
  it('are told by name, with the slots that there are', async () => {
    vi.spyOn(Date, 'now').mockReturnValue(1_700_000_000_500);
    const { metrics } = made(STATS);
    expect(await linesOf(metrics)).toEqual([
      `vllm:lora_requests_info{max_lora="4",running_lora_adapters="also%2C \\"sql\\",sql",` +
        `waiting_lora_adapters="also%2C \\"sql\\",cccccccccccc,sql"} 1700000000.5`,
      ...[
        ['sql', 8],
        ['also, \\"sql\\"', 8],
        ['idle', 64],
      ].map(
        ([name, rank]) =>
          `vllm:lora_adapter_loaded{model_name="demo",engine="0",adapter_name="${name}",level="gpu",rank="${rank}"} 1`,
      ),
      'vllm:num_gpu_loaded_lora_adapters{model_name="demo",engine="0"} 2',
      'vllm:max_gpu_lora_adapters{model_name="demo",engine="0"} 4',
    ]);
    expect(readMetrics(await metrics.text()).slots).toBe(4);
  });

  it('follow names that come and go', async () => {
    const { metrics, names } = made(STATS);
    await names.unload('idle');
    await names.unload('also, "sql"');
    await names.load('new', '/adapters/b', false);
    const loaded = (await linesOf(metrics)).flatMap((line) => /adapter_name="([^"]*)"/.exec(line)?.[1] ?? []);
    expect(loaded).toEqual(['sql', 'new']);
  });

  it('are not told of models without slots', async () => {
    const { metrics } = made();
    expect(await linesOf(metrics)).toEqual([]);
    expect(readMetrics(await metrics.text()).slots).toBeUndefined();
  });
});
