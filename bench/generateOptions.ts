/** The command line of the benchmark of generation. */
import { parseArgs } from 'node:util';
import { KV_CACHES, type KvCache, type Precision, QUANTIZED } from '../driver/targets/precision.js';
import { PAGE_TOKENS } from '../generate/pages.js';
import type { SamplingOptions } from '../generate/sampling.js';
import { CPU_ISAS, type CpuIsa } from '../ir/plan.js';
import { BENCH_TARGETS, type BenchTarget, OptionReader } from './optionReader.js';
import { SPREAD } from './requests.js';

export const USAGE = `bench:generate [--model llama-110m] [--target cpu|cuda] [--batch 1,8,64] [--prompt 512] [--new 64]
      [--threads N] [--isa NAME] [--profile] [--wait] [--requests N [--spread 1.1] [--cache-tokens N]]
      [--top-p 0.9] [--top-k 50] [--penalty 1.1]

Decoding with random weights: sequences of equal length side by side, as many as --batch says, one new token each in a
call. Prints the median time of a call, tokens per second, the bytes that a call must read (weights once, keys and
values of every sequence) per second, the same for the fastest call, and whether every sequence got the same bits in
every batch. On a CPU the rate is compared with that of threads that only read, measured before and after each batch.

  --model    folder of a config.json, or one below bench/models, with random weights; or a GGUF file with its own
  --target   cpu or cuda
  --batch    sequences side by side
  --prompt   tokens of each prompt
  --new      tokens to generate after each
  --threads  threads that compute on a CPU
  --quantize fp8 (weights and activations), or int4 for a model whose config.json says that it is stored so
  --isa      instruction set on a CPU: portable, avx2, avx512 or amx (default: the best that the CPU has)
  --top-p    draw at temperature 1 with this filter, by a model that chooses from logits; 1 leaves nothing out, so that
             the head draws
  --top-k    the same, with this filter; 0 leaves nothing out
  --penalty  the same, with this repetition penalty
  --wait     begin a call only when the one before it has been read
  --requests N requests at once instead, with prompts and answers of different lengths (lognormal, means 215 and 198);
             prints which calls the time goes to, and the share of an H100's roofline
  --spread   standard deviation of the logarithm of those lengths
  --cache-tokens  room for keys and values of the requests (default: what all of them need together)
  --kv-cache fp8: keys and values of half the size (default: 16bit)
  --profile  also the time of each kind of kernel, measured one launch at a time: the fastest of 12 for each launch`;

export interface GenerateBenchOptions {
  readonly model: string;
  readonly target: BenchTarget;
  /** Ascending. */
  readonly batches: readonly number[];
  readonly promptTokens: number;
  readonly newTokens: number;
  readonly threads: number;
  readonly isa?: CpuIsa;
  readonly precision?: Precision;
  readonly profiles: boolean;
  /** A call begins while the one before it runs. */
  readonly feeds: boolean;
  /** Requests of different lengths, instead of batches; 0 for none. */
  readonly requests: number;
  readonly spread: number;
  readonly cacheTokens?: number;
  readonly kvCache?: KvCache;
  /** How tokens are chosen. Default: the most likely ones, without logits. */
  readonly sampling?: SamplingOptions;
}

/** `undefined` if help was asked for. Throws UserError. */
export function parseGenerateOptions(args: readonly string[]): GenerateBenchOptions | undefined {
  const read = new OptionReader('bench:generate');
  const { values } = read.parse(() =>
    parseArgs({
      args: [...args],
      options: {
        model: { type: 'string', default: 'llama-110m' },
        target: { type: 'string', default: 'cpu' },
        batch: { type: 'string', default: '1,8,64' },
        prompt: { type: 'string', default: '512' },
        new: { type: 'string', default: '64' },
        threads: { type: 'string', default: '2' },
        isa: { type: 'string' },
        quantize: { type: 'string' },
        profile: { type: 'boolean', default: false },
        wait: { type: 'boolean', default: false },
        'top-p': { type: 'string' },
        'top-k': { type: 'string' },
        penalty: { type: 'string' },
        requests: { type: 'string', default: '0' },
        spread: { type: 'string', default: String(SPREAD) },
        'cache-tokens': { type: 'string' },
        'kv-cache': { type: 'string' },
        help: { type: 'boolean', default: false },
      },
    }),
  );
  if (values.help) return undefined;
  const { 'top-p': topP, 'top-k': topK, penalty } = values;
  const filters = {
    ...(topP === undefined ? {} : { topP: read.number('top-p', topP, 0.001, 1) }),
    ...(topK === undefined ? {} : { topK: read.whole('top-k', topK, 0, 1 << 20) }),
    ...(penalty === undefined ? {} : { repetitionPenalty: read.number('penalty', penalty, 0.1, 10) }),
  };
  return {
    model: values.model,
    target: read.oneOf('target', values.target, BENCH_TARGETS),
    batches: values.batch.split(',').map((each) => read.whole('batch', each, 1, 1024)),
    promptTokens: read.whole('prompt', values.prompt, 1, 65_536),
    newTokens: read.whole('new', values.new, 2, 65_536),
    profiles: values.profile,
    feeds: !values.wait,
    threads: read.whole('threads', values.threads, 1, 1024),
    spread: read.number('spread', values.spread, 0.1, 2),
    requests: read.whole('requests', values.requests, 0, 100_000),
    ...(Object.keys(filters).length === 0 ? {} : { sampling: { temperature: 1, ...filters } }),
    ...(values.quantize === undefined ? {} : { precision: read.oneOf('quantize', values.quantize, QUANTIZED) }),
    ...(values.isa === undefined ? {} : { isa: read.oneOf('isa', values.isa, CPU_ISAS) }),
    ...(values['kv-cache'] === undefined ? {} : { kvCache: read.oneOf('kv-cache', values['kv-cache'], KV_CACHES) }),
    ...(values['cache-tokens'] === undefined
      ? {}
      : { cacheTokens: read.whole('cache-tokens', values['cache-tokens'], PAGE_TOKENS, 1 << 24) }),
  };
}
