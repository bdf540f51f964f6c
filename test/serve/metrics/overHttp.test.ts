/** The page and /metrics over HTTP, on an engine whose device is made up. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { HttpCounts } from '../../../serve/metrics/httpCounts.js';
import { routesOf } from '../../../serve/http/routes.js';
import { counting } from '../../engine/counting.js';
import { type Served, servedModels } from '../../support/servedModels.js';

const KEY = 'secret';
const PAGE = '<!doctype html><title>made up</title>';

describe('a server with keys', () => {
  let served: Served;
  let url: string;
  /** What the device waits for. */
  let held = Promise.resolve();
  beforeAll(async () => {
    const { model: device } = counting({ onStep: () => held });
    served = servedModels({ device });
    const counts = new HttpCounts();
    ({ url } = await served.listen({ apiKeys: [KEY], page: PAGE, counts }, (client) => routesOf(client, counts)));
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

  it('counts what it could not answer', async () => {
    await fetch(`${url}/nothing/${'x'.repeat(100)}`, { method: 'DELETE' });
    const client = new AbortController();
    let goOn: () => void = () => undefined;
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${KEY}` };
    const body = JSON.stringify({ prompt: [9], max_tokens: 20, stream: true, ignore_eos: true });
    const stream = await fetch(`${url}/v1/completions`, { method: 'POST', headers, body, signal: client.signal });
    expect(stream.status).toBe(200);
    held = new Promise((resolve) => (goOn = resolve));
    client.abort();
    const linesOf = async (name: string): Promise<readonly string[]> => {
      const text = await (await fetch(`${url}/metrics`)).text();
      return text.split('\n').flatMap((line) => (line.startsWith(`${name}{`) ? [line.slice(name.length)] : []));
    };
    await expect.poll(async () => (await linesOf('http_requests_total')).join()).toContain('status="499"');
    goOn();
    const answered = await linesOf('http_requests_total');
    expect(answered).toEqual([
      '{handler="/",method="GET",status="200"} 1',
      '{handler="/v1/models",method="GET",status="401"} 1',
      '{handler="/v1/completions",method="POST",status="200"} 1',
      expect.stringMatching(/^\{handler="\/metrics",method="GET",status="200"\} \d+$/),
      '{handler="none",method="other",status="401"} 1',
      '{handler="/v1/completions",method="POST",status="499"} 1',
    ]);
  });
});
