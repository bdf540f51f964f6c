/** What /metrics says of requests that a made-up client answers, on a clock of its own. */
import { describe, expect, it, vi } from 'vitest';
import { Engine } from '../../../engine/engine.js';
import type { ModelStats } from '../../../engine/modelStats.js';
import type { EndReason, RequestEvent } from '../../../engine/request.js';
import { ServerMetrics } from '../../../serve/metrics/serverMetrics.js';
import type { ModelClient, RequestListener, ServedModel, ServedRequest } from '../../../serve/models.js';
import { counting } from '../../engine/counting.js';

const token = (sample = 0): RequestEvent => ({ kind: 'token', sample, token: { token: 1, logProb: -1 } });
const end = (reason: EndReason, sample = 0): RequestEvent => ({
  ...{ kind: 'end', sample, result: { tokens: [], promptScores: [], reason, foundTokens: 0 } },
});

interface Made {
  readonly metrics: ServerMetrics;
  /** What the client was asked. */
  readonly asked: { readonly request: ServedRequest; readonly listener: RequestListener; readonly calls: string[] }[];
  /** Seconds pass. */
  wait(seconds: number): void;
}

function made(stats: () => Promise<readonly ModelStats[]> = async () => idle(), names = [['demo', 'other']]): Made {
  let now = 5000;
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  const asked: Made['asked'] = [];
  const models = names.map((each, i) => ({ key: `m${i}`, names: each, maxLength: 100 }) as unknown as ServedModel);
  const client: ModelClient = {
    ...{ models, stats, checkGrammar: () => Promise.resolve() },
    submit: (request, listener) => {
      const calls: string[] = [];
      asked.push({ request, listener, calls });
      return {
        cancel: () => void calls.push('cancel'),
        cut: (sample, count) => void calls.push(`cut ${sample} ${count}`),
        acknowledge: (count) => void calls.push(`acknowledge ${count}`),
      };
    },
  };
  return { metrics: new ServerMetrics(client), asked, wait: (seconds) => (now += 1000 * seconds) };
}

const idle = (): readonly ModelStats[] => [Engine.of(counting({ cacheTokens: 160 }).model).statsOf()];
const LABELS = 'model_name="demo",engine="0"';
const ignore: RequestListener = { onEvents: () => undefined, onRefused: () => undefined };

/** Values of the lines whose name and labels begin like this, by what follows. */
async function linesOf(metrics: ServerMetrics, begin: string): Promise<Readonly<Record<string, number>>> {
  const lines = (await metrics.text()).split('\n').filter((line) => line.startsWith(begin));
  return Object.fromEntries(
    lines.map((line) => [line.slice(begin.length, line.lastIndexOf(' ')), Number(/\S+$/.exec(line))]),
  );
}
const valueOf = async (metrics: ServerMetrics, name: string): Promise<number | undefined> =>
  (await linesOf(metrics, `${name}{${LABELS}}`))[''];

describe('/metrics', () => {
  it('has the names, kinds and labels that boards and gateways read', async () => {
    const { metrics } = made();
    const kinds = (await metrics.text()).split('\n').filter((line) => line.startsWith('# TYPE'));
    expect(kinds.map((line) => line.slice('# TYPE '.length))).toMatchInlineSnapshot(`
      [
        "vllm:num_requests_running gauge",
        "vllm:num_requests_waiting gauge",
        "tilewright:num_requests_paused gauge",
        "vllm:kv_cache_usage_perc gauge",
        "vllm:prompt_tokens_total counter",
        "vllm:generation_tokens_total counter",
        "vllm:num_preemptions_total counter",
        "vllm:prefix_cache_queries_total counter",
        "vllm:prefix_cache_hits_total counter",
        "vllm:spec_decode_num_drafts_total counter",
        "vllm:spec_decode_num_draft_tokens_total counter",
        "vllm:spec_decode_num_accepted_tokens_total counter",
        "tilewright:written_tokens_total counter",
        "tilewright:written_parts_total counter",
        "vllm:request_success_total counter",
        "vllm:spec_decode_num_accepted_tokens_per_pos_total counter",
        "tilewright:draft_tokens_total counter",
        "tilewright:accepted_draft_tokens_total counter",
        "vllm:time_to_first_token_seconds histogram",
        "vllm:inter_token_latency_seconds histogram",
        "vllm:request_time_per_output_token_seconds histogram",
        "vllm:e2e_request_latency_seconds histogram",
        "vllm:request_queue_time_seconds histogram",
        "vllm:request_prefill_time_seconds histogram",
        "vllm:request_decode_time_seconds histogram",
        "vllm:request_inference_time_seconds histogram",
        "vllm:request_prompt_tokens histogram",
        "vllm:request_generation_tokens histogram",
        "vllm:request_max_num_generation_tokens histogram",
        "vllm:request_params_n histogram",
        "vllm:request_params_max_tokens histogram",
        "vllm:iteration_tokens_total histogram",
        "vllm:cache_config_info gauge",
        "vllm:lora_requests_info gauge",
        "vllm:lora_adapter_loaded gauge",
        "vllm:num_gpu_loaded_lora_adapters gauge",
        "vllm:max_gpu_lora_adapters gauge",
        "http_requests_total counter",
        "process_start_time_seconds gauge",
        "process_resident_memory_bytes gauge",
        "process_cpu_seconds_total counter",
      ]
    `);
    expect(await linesOf(metrics, 'vllm:cache_config_info')).toEqual({
      [`{${LABELS},block_size="16",num_gpu_blocks="10"}`]: 1,
    });
    expect(await linesOf(metrics, `vllm:request_success_total{${LABELS},`)).toEqual({
      ...{ 'finished_reason="stop"}': 0, 'finished_reason="length"}': 0 },
      ...{ 'finished_reason="abort"}': 0, 'finished_reason="error"}': 0 },
    });
    expect(metrics.registry.contentType).toBe('text/plain; version=0.0.4; charset=utf-8');
  });

  it('counts drafts as vLLM does, and by drafter and depth', async () => {
    const drafts = [
      { drafter: 'ngram', rounds: 2, drafted: [2, 2, 1], accepted: [2, 1, 0] },
      { drafter: 'suffix', rounds: 3, drafted: [3], accepted: [1] },
    ];
    const [stats] = idle();
    const { metrics } = made(() => Promise.resolve([{ ...stats!, drafts, writtenTokens: 9, writtenParts: 5 }]));
    expect(await linesOf(metrics, 'vllm:spec_decode_num_')).toEqual({
      [`drafts_total{${LABELS}}`]: 5,
      [`draft_tokens_total{${LABELS}}`]: 8,
      [`accepted_tokens_total{${LABELS}}`]: 4,
      [`accepted_tokens_per_pos_total{${LABELS},position="0"}`]: 3,
      [`accepted_tokens_per_pos_total{${LABELS},position="1"}`]: 1,
      [`accepted_tokens_per_pos_total{${LABELS},position="2"}`]: 0,
    });
    const own = (name: string) => linesOf(metrics, `tilewright:${name}{${LABELS},drafter=`);
    expect(await own('draft_tokens_total')).toEqual({
      ...{ '"ngram",depth="1"}': 2, '"ngram",depth="2"}': 2, '"ngram",depth="3"}': 1, '"suffix",depth="1"}': 3 },
    });
    expect(await own('accepted_draft_tokens_total')).toEqual({
      ...{ '"ngram",depth="1"}': 2, '"ngram",depth="2"}': 1, '"ngram",depth="3"}': 0, '"suffix",depth="1"}': 1 },
    });
    expect(await valueOf(metrics, 'tilewright:written_tokens_total')).toBe(9);
    expect(await valueOf(metrics, 'tilewright:written_parts_total')).toBe(5);
  });

  it('counts the bounds of histograms from the least to all', async () => {
    const { metrics } = made();
    const buckets = Object.keys(await linesOf(metrics, `vllm:request_prompt_tokens_bucket{${LABELS},`));
    expect(buckets).toEqual([1, 2, 5, 10, 20, 50, 100, '+Inf'].map((le) => `le="${le}"}`));
    const first = Object.keys(await linesOf(metrics, `vllm:time_to_first_token_seconds_bucket{${LABELS},`));
    expect([first[0], first.at(-2), first.length]).toEqual(['le="0.001"}', 'le="2560"}', 23]);
  });

  it('follows a stream: first token, gaps, end', async () => {
    const { metrics, asked, wait } = made();
    const seen: RequestEvent[] = [];
    const listener: RequestListener = { ...ignore, onEvents: (events) => void seen.push(...events) };
    const request = metrics.client.submit(
      { kind: 'generate', model: 'm0', prompt: [1, 2, 3], maxNewTokens: 7 },
      listener,
    );
    const [{ listener: told, calls }] = asked as [Made['asked'][0]];
    wait(0.5);
    told.onEvents([token()]);
    wait(0.02);
    told.onEvents([token(), token()]);
    wait(0.04);
    told.onEvents([token(), end('length')]);
    request.acknowledge(5);
    expect(seen).toHaveLength(5);
    expect(calls).toEqual(['acknowledge 5']);
    const values = await Promise.all(
      [
        ...['vllm:prompt_tokens_total', 'vllm:generation_tokens_total', 'vllm:time_to_first_token_seconds_sum'],
        ...['vllm:inter_token_latency_seconds_count', 'vllm:inter_token_latency_seconds_sum'],
        ...['vllm:request_time_per_output_token_seconds_sum', 'vllm:e2e_request_latency_seconds_sum'],
        ...['vllm:request_prompt_tokens_sum', 'vllm:request_generation_tokens_sum'],
        ...['vllm:request_params_max_tokens_sum', 'vllm:request_params_n_sum'],
      ].map((name) => valueOf(metrics, name)),
    );
    expect(values.map((value) => Number(value!.toFixed(6)))).toEqual([3, 4, 0.5, 2, 0.06, 0.02, 0.56, 3, 4, 7, 1]);
    expect(await linesOf(metrics, `vllm:request_success_total{${LABELS},finished_reason="length"}`)).toEqual({ '': 1 });
  });

  it('counts each of several texts, and the request once', async () => {
    const { metrics, asked } = made();
    const request = metrics.client.submit({ kind: 'generate', prompt: [1, 2], maxNewTokens: 7, n: 3 }, ignore);
    const { listener, calls } = asked[0]!;
    listener.onEvents([token(0), token(1), token(1), token(2), token(2), token(2)]);
    // A stop string in the second text: its end is told once more by the engine.
    request.cut(1, 1);
    listener.onEvents([end('eos', 0), end('stop', 1)]);
    request.cancel();
    listener.onEvents([end('aborted', 2)]);
    expect(calls).toEqual(['cut 1 1', 'cancel']);
    expect(await linesOf(metrics, `vllm:request_success_total{${LABELS},`)).toEqual({
      ...{ 'finished_reason="stop"}': 2, 'finished_reason="length"}': 0 },
      ...{ 'finished_reason="abort"}': 1, 'finished_reason="error"}': 0 },
    });
    const name = (each: string): Promise<number | undefined> => valueOf(metrics, `vllm:${each}`);
    expect(await name('request_params_n_sum')).toBe(3);
    expect(await name('request_params_n_count')).toBe(1);
    expect(await name('request_generation_tokens_sum')).toBe(1 + 1 + 3);
    expect(await name('request_max_num_generation_tokens_sum')).toBe(3);
    expect(await name('prompt_tokens_total')).toBe(6);
    expect(await name('generation_tokens_total')).toBe(6);
  });

  it('counts what is scored without tokens, what fails, and nothing of what is refused', async () => {
    const { metrics, asked } = made();
    const score: ServedRequest = { kind: 'score', tokens: [1, 2, 3], rows: [] };
    for (let i = 0; i < 3; i++) metrics.client.submit(score, ignore);
    asked[0]!.listener.onEvents([end('length')]);
    asked[1]!.listener.onEvents([{ kind: 'failed', sample: 0, error: new Error('NaN') }]);
    const refused = vi.fn();
    metrics.client.submit(score, { ...ignore, onRefused: refused });
    asked[3]!.listener.onRefused(new Error('full'));
    expect(refused).toHaveBeenCalledOnce();
    expect(await valueOf(metrics, 'vllm:prompt_tokens_total')).toBe(3);
    expect(await valueOf(metrics, 'vllm:e2e_request_latency_seconds_count')).toBe(2);
    expect(await valueOf(metrics, 'vllm:time_to_first_token_seconds_count')).toBe(0);
  });

  it('shows what the engine says, and its last word where it does not answer', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const [stats] = idle();
    let answer: () => Promise<readonly ModelStats[]> = () =>
      Promise.resolve([{ ...stats!, running: 3, waiting: 2, heldPages: 4, promptTokens: 50, foundTokens: 20 }]);
    const { metrics } = made(() => answer());
    const seen = async (): Promise<unknown> =>
      Promise.all(
        [
          ...['num_requests_running', 'num_requests_waiting', 'kv_cache_usage_perc'],
          ...['prefix_cache_queries_total', 'prefix_cache_hits_total'],
        ].map((name) => valueOf(metrics, `vllm:${name}`)),
      );
    expect(await seen()).toEqual([3, 2, 0.4, 50, 20]);
    answer = () => Promise.reject(new Error('gone'));
    expect(await seen()).toEqual([3, 2, 0.4, 50, 20]);
    answer = () => new Promise(() => undefined);
    const late = metrics.text();
    await vi.advanceTimersByTimeAsync(1000);
    expect(await late).toContain(`vllm:num_requests_running{${LABELS}} 3`);
    expect(vi.getTimerCount()).toBe(0);
    vi.useRealTimers();
  });

  it('names models by what clients call them, whatever is in the name', async () => {
    const stats = idle();
    const { metrics } = made(async () => [...stats, ...stats], [['a"b\\\n', 'x'], ['judge']]);
    const text = await metrics.text();
    expect(text).toContain('vllm:num_requests_running{model_name="a\\"b\\\\\\n",engine="0"} 0');
    expect(text).toContain('vllm:num_requests_running{model_name="judge",engine="0"} 0');
  });
});
