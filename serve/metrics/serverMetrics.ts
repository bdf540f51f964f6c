/**
 * What a server does, as Prometheus reads it: under vLLM's names, labels and buckets, so that boards, autoscalers and
 * gateways made for it work as they are. Everything is counted elsewhere and read when somebody asks.
 */
import { Counter, Gauge, Registry } from 'prom-client';
import type { DraftStats, ModelStats } from '../../engine/modelStats.js';
import { PAGE_TOKENS } from '../../engine/pages.js';
import type { Tally } from '../../system/buckets.js';
import type { Route } from '../exchange.js';
import type { ModelClient, ServedModel } from '../models.js';
import { describeAdapters } from './adapterMetrics.js';
import type { HttpCounts } from './httpCounts.js';
import { measuredClient } from './measuredClient.js';
import { RequestCounts } from './requestCounts.js';
import { TallyHistogram } from './tallyHistogram.js';

/** A model, and what was counted of it by this thread and by the engine's. */
interface Measured {
  readonly model: ServedModel;
  readonly counts: RequestCounts;
  stats: ModelStats;
}

interface Described<T> {
  readonly name: string;
  readonly help: string;
  readonly of: (measured: Measured) => T;
}

const GAUGES: readonly Described<number>[] = [
  { name: 'vllm:num_requests_running', help: 'Sequences that steps take.', of: ({ stats }) => stats.running },
  {
    name: 'vllm:num_requests_waiting',
    help: 'Sequences that wait for their first step, or for pages.',
    of: ({ stats }) => stats.waiting,
  },
  {
    name: 'tilewright:num_requests_paused',
    help: 'Sequences that wait for their readers.',
    of: ({ stats }) => stats.paused,
  },
  {
    name: 'vllm:kv_cache_usage_perc',
    help: 'Share of the pages of keys and values that sequences hold; 1 is all.',
    of: ({ stats }) => (stats.pages === 0 ? 0 : stats.heldPages / stats.pages),
  },
];

const COUNTERS: readonly Described<number>[] = [
  { name: 'vllm:prompt_tokens_total', help: 'Tokens of prompts.', of: ({ counts }) => counts.promptTokens },
  { name: 'vllm:generation_tokens_total', help: 'Generated tokens.', of: ({ counts }) => counts.generationTokens },
  {
    name: 'vllm:num_preemptions_total',
    help: 'Sequences that gave their pages back because others needed them.',
    of: ({ stats }) => stats.preemptions,
  },
  {
    name: 'vllm:prefix_cache_queries_total',
    help: 'Tokens of prompts that were looked up among pages.',
    of: ({ stats }) => stats.promptTokens,
  },
  {
    name: 'vllm:prefix_cache_hits_total',
    help: 'Tokens of prompts that were found in pages.',
    of: ({ stats }) => stats.foundTokens,
  },
];

const sumOf = ({ drafts }: ModelStats, of: (stats: DraftStats) => number | readonly number[]): number =>
  drafts.flatMap((each) => of(each)).reduce((sum, each) => sum + each, 0);

/** Drafts of all drafters together, as vLLM counts them. */
const DRAFT_COUNTERS: readonly Described<number>[] = [
  {
    name: 'vllm:spec_decode_num_drafts_total',
    help: 'Texts that steps took with drafts, one for each text and step.',
    of: ({ stats }) => sumOf(stats, ({ rounds }) => rounds),
  },
  {
    name: 'vllm:spec_decode_num_draft_tokens_total',
    help: 'Drafts that steps computed.',
    of: ({ stats }) => sumOf(stats, ({ drafted }) => drafted),
  },
  {
    name: 'vllm:spec_decode_num_accepted_tokens_total',
    help: 'Drafts that are tokens of texts.',
    of: ({ stats }) => sumOf(stats, ({ accepted }) => accepted),
  },
  {
    name: 'tilewright:written_tokens_total',
    help: 'Tokens that steps gave texts.',
    of: ({ stats }) => stats.writtenTokens,
  },
  {
    name: 'tilewright:written_parts_total',
    help: 'How often a step gave a text tokens; with drafts it may be several at a time.',
    of: ({ stats }) => stats.writtenParts,
  },
];

const HISTOGRAMS: readonly Described<Tally>[] = [
  {
    name: 'vllm:time_to_first_token_seconds',
    help: 'From taking a request to its first token.',
    of: ({ counts }) => counts.timeToFirstToken,
  },
  {
    name: 'vllm:inter_token_latency_seconds',
    help: 'From tokens to the next ones of the same text.',
    of: ({ counts }) => counts.interTokenLatency,
  },
  {
    name: 'vllm:request_time_per_output_token_seconds',
    help: 'Mean time of a token behind the first, of each text.',
    of: ({ counts }) => counts.timePerOutputToken,
  },
  {
    name: 'vllm:e2e_request_latency_seconds',
    help: 'From taking a request to its end.',
    of: ({ counts }) => counts.endToEnd,
  },
  {
    name: 'vllm:request_queue_time_seconds',
    help: 'From submitting a sequence to its first step.',
    of: ({ stats }) => stats.queueSeconds,
  },
  {
    name: 'vllm:request_prefill_time_seconds',
    help: 'From the first step of a sequence to its first token.',
    of: ({ stats }) => stats.prefillSeconds,
  },
  {
    name: 'vllm:request_decode_time_seconds',
    help: 'From the first token of a sequence to its last.',
    of: ({ stats }) => stats.decodeSeconds,
  },
  {
    name: 'vllm:request_inference_time_seconds',
    help: 'From the first step of a sequence to its last token.',
    of: ({ stats }) => stats.inferenceSeconds,
  },
  {
    name: 'vllm:request_prompt_tokens',
    help: 'Tokens of the prompt of each text.',
    of: ({ counts }) => counts.promptLengths,
  },
  {
    name: 'vllm:request_generation_tokens',
    help: 'Generated tokens of each text.',
    of: ({ counts }) => counts.generationLengths,
  },
  {
    name: 'vllm:request_max_num_generation_tokens',
    help: 'Generated tokens of the longest text of each request.',
    of: ({ counts }) => counts.longestGenerations,
  },
  { name: 'vllm:request_params_n', help: 'Texts that a request asked for.', of: ({ counts }) => counts.choices },
  {
    name: 'vllm:request_params_max_tokens',
    help: 'Most tokens that a request allowed.',
    of: ({ counts }) => counts.maxTokens,
  },
  { name: 'vllm:iteration_tokens_total', help: 'New tokens of each step.', of: ({ stats }) => stats.stepTokens },
];

/** By drafter, and by depth from 1. */
const OF_DRAFTERS: readonly (readonly [name: string, help: string, of: (stats: DraftStats) => readonly number[]])[] = [
  ['tilewright:draft_tokens_total', 'Drafts that steps computed.', ({ drafted }) => drafted],
  ['tilewright:accepted_draft_tokens_total', 'Drafts that are tokens of texts.', ({ accepted }) => accepted],
];

/** A thread that is busy with a step answers within milliseconds. What it said last is shown where it does not. */
const STATS_MS = 1000;

const NO_TALLY: Tally = { bounds: [], counts: new Float64Array(1), sum: 0 };
const NO_STATS: ModelStats = {
  ...{ running: 0, waiting: 0, paused: 0, pages: 0, heldPages: 0, steps: 0, preemptions: 0 },
  ...{ promptTokens: 0, foundTokens: 0, stepTokens: NO_TALLY, writtenTokens: 0, writtenParts: 0, drafts: [] },
  ...{ queueSeconds: NO_TALLY, prefillSeconds: NO_TALLY, decodeSeconds: NO_TALLY, inferenceSeconds: NO_TALLY },
};

export class ServerMetrics {
  /** The client to give to endpoints: what goes through it is counted. */
  readonly client: ModelClient;
  readonly registry = new Registry();
  private readonly source: ModelClient;
  private readonly measured: readonly Measured[];

  /** `http`: how requests were answered, where that is counted. */
  constructor(client: ModelClient, http?: HttpCounts) {
    this.source = client;
    const models = client.models.filter(({ adapter }) => adapter === undefined);
    this.measured = models.map((model) => ({
      ...{ model, counts: new RequestCounts(model.maxLength), stats: NO_STATS },
    }));
    const byKey = new Map(this.measured.map(({ model, counts }) => [model.key, counts]));
    const [only] = byKey.values();
    this.client = measuredClient(client, (key) => (key === undefined ? only : byKey.get(key)));
    this.describe();
    describeAdapters(this.registry, client, this.measured);
    describeHttp(this.registry, http);
    describeProcess(this.registry);
  }

  /** GET /metrics: numbers alone, also without a key, as Prometheus asks for them. */
  get route(): Route {
    return {
      ...{ method: 'GET', path: '/metrics', isOpen: true },
      handle: async (exchange) => exchange.replyText(200, await this.text(), this.registry.contentType),
    };
  }

  async text(): Promise<string> {
    await this.refresh();
    return this.registry.metrics();
  }

  private async refresh(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<undefined>((resolve) => (timer = setTimeout(resolve, STATS_MS, undefined)));
    try {
      const stats = await Promise.race([this.source.stats().catch(() => undefined), late]);
      stats?.forEach((each, i) => {
        const measured = this.measured[i];
        if (measured !== undefined) measured.stats = each;
      });
    } finally {
      clearTimeout(timer);
    }
  }

  private describe(): void {
    const { measured, registry } = this;
    const registers = [registry];
    const labelNames = ['model_name', 'engine'];
    const labelled = measured.map((each) => ({ each, labels: { model_name: each.model.names[0]!, engine: '0' } }));
    for (const { name, help, of } of GAUGES)
      new Gauge({
        ...{ name, help, labelNames, registers },
        collect() {
          for (const { each, labels } of labelled) this.set(labels, of(each));
        },
      });
    for (const { name, help, of } of [...COUNTERS, ...DRAFT_COUNTERS])
      new Counter({
        ...{ name, help, labelNames, registers },
        collect() {
          this.reset();
          for (const { each, labels } of labelled) this.inc(labels, of(each));
        },
      });
    new Counter({
      ...{ name: 'vllm:request_success_total', help: 'Texts that have ended, by what ended them.', registers },
      labelNames: [...labelNames, 'finished_reason'],
      collect() {
        this.reset();
        for (const { each, labels } of labelled)
          for (const [reason, count] of Object.entries(each.counts.finished))
            this.inc({ ...labels, finished_reason: reason }, count);
      },
    });
    new Counter({
      ...{ name: 'vllm:spec_decode_num_accepted_tokens_per_pos_total', registers },
      help: 'Drafts that are tokens of texts, by the drafts before them.',
      labelNames: [...labelNames, 'position'],
      collect() {
        this.reset();
        for (const { each, labels } of labelled)
          for (const { accepted } of each.stats.drafts)
            for (const [position, count] of accepted.entries()) this.inc({ ...labels, position }, count);
      },
    });
    for (const [name, help, of] of OF_DRAFTERS)
      new Counter({
        ...{ name, help, registers, labelNames: [...labelNames, 'drafter', 'depth'] },
        collect() {
          this.reset();
          for (const { each, labels } of labelled)
            for (const stats of each.stats.drafts)
              for (const [i, count] of of(stats).entries())
                this.inc({ ...labels, drafter: stats.drafter, depth: i + 1 }, count);
        },
      });
    for (const { name, help, of } of HISTOGRAMS)
      new TallyHistogram(registry, name, help, () => labelled.map(({ each, labels }) => ({ labels, tally: of(each) })));
    new Gauge({
      ...{ name: 'vllm:cache_config_info', help: 'Tokens of a page, and pages with memory.', registers },
      labelNames: [...labelNames, 'block_size', 'num_gpu_blocks'],
      collect() {
        this.reset();
        for (const { each, labels } of labelled)
          this.set({ ...labels, block_size: String(PAGE_TOKENS), num_gpu_blocks: String(each.stats.pages) }, 1);
      },
    });
  }
}

function describeHttp(registry: Registry, counts: HttpCounts | undefined): void {
  new Counter({
    ...{ name: 'http_requests_total', help: 'Requests over HTTP that are over; 499: their client had gone.' },
    ...{ labelNames: ['handler', 'method', 'status'], registers: [registry] },
    collect() {
      this.reset();
      for (const { handler, method, status, count } of counts?.all ?? [])
        this.inc({ handler, method, status: String(status) }, count);
    },
  });
}

/** The process: main thread, this one and their helpers, and not the processes that own devices. */
function describeProcess(registry: Registry): void {
  const registers = [registry];
  const started = Date.now() / 1000 - process.uptime();
  new Gauge({
    ...{ name: 'process_start_time_seconds', help: 'When it began, in seconds since 1970.', registers },
    collect() {
      this.set(started);
    },
  });
  new Gauge({
    ...{ name: 'process_resident_memory_bytes', help: 'Memory that it uses.', registers },
    collect() {
      this.set(process.memoryUsage.rss());
    },
  });
  new Counter({
    ...{ name: 'process_cpu_seconds_total', help: 'Processor time of its threads.', registers },
    collect() {
      this.reset();
      const { user, system } = process.cpuUsage();
      this.inc((user + system) / 1e6);
    },
  });
}
