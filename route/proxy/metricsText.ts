/** What a router reads of a replica's metrics: a few gauges under vLLM's names, from text that may be anything. */

export interface ReplicaMetrics {
  /** Sequences in steps, and behind them. */
  readonly running: number;
  readonly waiting: number;
  /** Share of pages that sequences hold; undefined where it is not said. */
  readonly cacheUse: number | undefined;
  /** Mean tokens of prompts so far; undefined before the first. */
  readonly meanPromptTokens: number | undefined;
  /** Tokens written so far. */
  readonly writtenTokens: number;
  /** Adapters that fit in at once; undefined where it is not said. */
  readonly slots: number | undefined;
}

const NAMES = {
  running: 'vllm:num_requests_running',
  waiting: 'vllm:num_requests_waiting',
  cacheUse: 'vllm:kv_cache_usage_perc',
  promptSum: 'vllm:request_prompt_tokens_sum',
  promptCount: 'vllm:request_prompt_tokens_count',
  written: 'vllm:generation_tokens_total',
} as const;
const LORA = 'vllm:lora_requests_info';

const MAX_LINES = 100_000;
/** Most that is believed of a gauge. */
const MOST = 1e15;

/** What is missing counts as 0. Values that are no numbers, negative or absurd are left out. */
export function readMetrics(text: string): ReplicaMetrics {
  const sums = new Map<string, number>();
  let [slots, slotsAt]: [number | undefined, number] = [undefined, -1];
  let from = 0;
  for (let lines = 0; from < text.length && lines < MAX_LINES; lines++) {
    let end = text.indexOf('\n', from);
    if (end < 0) end = text.length;
    if (text.startsWith('vllm:', from)) {
      const line = text.slice(from, Math.min(end, from + 8192));
      const name = /^[\w:]+/.exec(line)![0];
      const value = valueOf(line);
      if (value !== undefined) {
        sums.set(name, (sums.get(name) ?? 0) + value);
        // Its value is a time: the last one told counts.
        const most = name === LORA && value >= slotsAt ? /[{,]max_lora="(\d{1,6})"/.exec(line)?.[1] : undefined;
        if (most !== undefined) [slots, slotsAt] = [Number(most), value];
      }
    }
    from = end + 1;
  }
  const of = (name: string): number => sums.get(name) ?? 0;
  const count = of(NAMES.promptCount);
  return {
    running: of(NAMES.running),
    waiting: of(NAMES.waiting),
    cacheUse: sums.get(NAMES.cacheUse),
    meanPromptTokens: count > 0 ? of(NAMES.promptSum) / count : undefined,
    writtenTokens: of(NAMES.written),
    slots,
  };
}

/** `name{labels} value [time]` */
function valueOf(line: string): number | undefined {
  const at = line.lastIndexOf('}');
  const [text = ''] = (at < 0 ? line.slice(line.indexOf(' ') + 1) : line.slice(at + 1)).trim().split(/\s/, 1);
  const value = text === '' ? NaN : Number(text);
  return value >= 0 && value <= MOST ? value : undefined;
}
