/** Ten thousand clients that go away at random moments: no request, page, timer or listener is left of any. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { LoadClient } from '../../bench/load/client.js';
import { randomOf } from '../fuzz/mutate.js';
import { servedModels } from '../support/servedModels.js';

const ROUNDS = 20;
const CLIENTS = 500;
const SIDE_BY_SIDE = 50;

/** Bytes of the heap that are in use, without garbage. */
function heapBytes(): number {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  for (let i = 0; i < 3; i++) collect();
  return process.memoryUsage().heapUsed;
}

describe('clients that go away', () => {
  it('leave nothing', { timeout: 900_000 }, async () => {
    const served = servedModels({ path: { cacheTokens: 8192 } });
    const { url } = await served.listen();
    const client = new LoadClient({ baseUrl: url });
    const random = randomOf(1);
    const below = (count: number): number => Math.floor(random() * count);
    const one = async (): Promise<boolean> => {
      const body = {
        ...{ model: 'demo', prompt: Array.from({ length: 1 + below(40) }, () => below(4000)), n: 1 + below(3) },
        ...{ max_tokens: 1 + below(60), stream: below(4) > 0, temperature: below(2), ignore_eos: below(2) > 0 },
        ...(below(3) === 0 ? { stop: ['e', 'zz'] } : {}),
        ...(below(4) === 0 ? { logprobs: 3 } : {}),
      };
      const sent = { path: '/v1/completions', body: JSON.stringify(body), abortAfter: below(30) };
      return (await client.send(sent)).isAborted;
    };
    const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
    const sizes: number[] = [];
    let aborted = 0;
    let before = 0;
    for (let round = 0; round < ROUNDS; round++) {
      for (let done = 0; done < CLIENTS; done += SIDE_BY_SIDE)
        for (const isAborted of await Promise.all(Array.from({ length: SIDE_BY_SIDE }, one)))
          aborted += Number(isAborted);
      await expect.poll(() => served.client.active).toBe(0);
      await expect
        .poll(() => {
          const { running, waiting, paused, heldPages } = served.engine.statsOf();
          return { running, waiting, paused, heldPages };
        })
        .toEqual({ running: 0, waiting: 0, paused: 0, heldPages: 0 });
      expect(served.client.waiting).toEqual({ requests: 0, tokens: 0 });
      if (round === 1) before = timers();
      sizes.push(heapBytes());
    }
    expect(aborted).toBeGreaterThan((ROUNDS * CLIENTS) / 3);
    expect(timers()).toBeLessThanOrEqual(before + 2);
    // A thousandth of a megabyte for each client would show.
    const [early, late] = [Math.max(...sizes.slice(4, 10)), Math.min(...sizes.slice(14))];
    expect(late - early, sizes.map((bytes) => (bytes / 2 ** 20).toFixed(1)).join(' ')).toBeLessThan(2 << 20);
    client.close();
    await served.close();
  });
});
