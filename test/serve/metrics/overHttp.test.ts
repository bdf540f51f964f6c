/** The page and /metrics over HTTP, on an engine whose device is made up. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Served, servedModels } from '../../support/servedModels.js';

const KEY = 'secret';
const PAGE = '<!doctype html><title>made up</title>';

describe('a server with keys', () => {
  let served: Served;
  let url: string;
  beforeAll(async () => {
    served = servedModels();
    ({ url } = await served.listen({ apiKeys: [KEY], page: PAGE }));
  });
  afterAll(() => served.close());

  it('shows its page to everybody, and to no frame', async () => {
    const response = await fetch(`${url}/`);
    expect([response.status, await response.text()]).toEqual([200, PAGE]);
    expect(response.headers.get('content-type')).toBe('text/html; charset=utf-8');
    expect(response.headers.get('content-security-policy')).toBe("frame-ancestors 'none'");
    expect((await fetch(`${url}/v1/models`)).status).toBe(401);
  });

  it('counts in /metrics what went over HTTP, and asks for no key', async () => {
    const answer = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${KEY}` },
      body: JSON.stringify({ prompt: [5, 6, 7], max_tokens: 4, n: 2, seed: 1, ignore_eos: true }),
    });
    expect(answer.status).toBe(200);
    const metrics = await fetch(`${url}/metrics`);
    expect(metrics.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
    const text = await metrics.text();
    const labels = '{model_name="demo",engine="0"}';
    for (const line of [
      ...[`vllm:prompt_tokens_total${labels} 6`, `vllm:generation_tokens_total${labels} 8`],
      ...[`vllm:prefix_cache_queries_total${labels} 6`, `vllm:request_queue_time_seconds_count${labels} 2`],
      'vllm:request_success_total{model_name="demo",engine="0",finished_reason="length"} 2',
      ...[`vllm:request_params_n_sum${labels} 2`, `vllm:num_requests_running${labels} 0`],
    ])
      expect(text).toContain(`\n${line}\n`);
    // The second text copies what the first has computed of the prompt, but for its last token.
    expect(text).toContain(`\nvllm:prefix_cache_hits_total${labels} 2\n`);
    expect(text).toContain(`\nvllm:iteration_tokens_total_sum${labels} ${3 + 1 + 3 + 3}\n`);
  });
});
