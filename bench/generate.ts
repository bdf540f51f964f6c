/** `npm run bench:generate`: decoding rates with random weights, against the bytes that a call must read. */
import type { Command } from 'commander';
import { median } from '../autotune/records.js';
import { deviceModelOf } from '../driver/devices/deviceModel.js';
import { BatchWork, packedWeightBytes } from '../commands/work.js';
import type { DeviceExecutor } from '../driver/executor.js';
import { KV_CACHES, type KvCache, type Precision, QUANTIZED } from '../driver/precision.js';
import { UserError } from '../errors.js';
import { Engine } from '../engine/engine.js';
import type { SamplingOptions } from '../engine/options.js';
import { PAGE_TOKENS } from '../engine/pages.js';
import type { Generated } from '../engine/request.js';
import type { DeviceModel } from '../engine/device.js';
import { STEP } from '../ir/function.js';
import { CPU_ISAS, type CpuIsa, scoreOf } from '../ir/plan.js';
import { DTYPE_BYTES } from '../ir/types.js';
import { loadAddon } from '../runtime/addon.js';
import type { CallArrays } from '../runtime/call.js';
import type { NativePool } from '../runtime/native.js';
import { at } from '../system/at.js';
import { defined } from '../system/defined.js';
import { BENCH_TARGETS, benchCommand, type BenchTarget, decimal, list, oneOf, runProgram, whole } from './command.js';
import { openRandomModel } from './inputs.js';
import { promptOf, requestLengths, SPREAD } from './requestLengths.js';
import { serve } from './serve.js';

interface Timed {
  readonly generated: readonly Generated[];
  /** Milliseconds from a call in which every sequence got a token to the next one's end. */
  readonly decode: readonly number[];
  /** Milliseconds of it from the first kernel to the last. */
  readonly onDevices: readonly number[];
  readonly promptSeconds: number;
}

async function timed(
  { model, busy }: { readonly model: DeviceModel; readonly busy: readonly number[] },
  batch: number,
  vocabSize: number,
  options: GenerateBenchOptions,
): Promise<Timed> {
  const onDevices: number[] = [];
  const decode: number[] = [];
  let promptSeconds = 0;
  let ended = performance.now();
  const generator = Engine.of({
    ...model,
    step: async (message) => {
      const outputs = await model.step(message);
      const now = performance.now();
      const milliseconds = now - ended;
      ended = now;
      if (message.tokens.length === batch && message.row.length === batch && message.from.every((at) => at > 0)) {
        decode.push(milliseconds);
        onDevices.push(busy.at(-1) ?? NaN);
      } else promptSeconds += milliseconds / 1000;
      return outputs;
    },
  });
  const generated = await Promise.all(
    Array.from({ length: batch }, (_, i) =>
      generator.generate({
        prompt: promptOf(i, options.prompt, vocabSize),
        maxNewTokens: options.new,
        sampling: samplingOf(options) ?? {},
      }),
    ),
  );
  return { generated, decode, onDevices, promptSeconds };
}

/** The rate at which the threads only read memory: the ceiling of decoding on a CPU. The best of all measurements. */
class ReadRate {
  private readonly pool: NativePool;
  private best = 0;

  constructor(threads: number) {
    this.pool = new (loadAddon().Pool)(threads);
  }

  async measure(): Promise<void> {
    this.best = Math.max(this.best, await loadAddon().peak(this.pool, 'read', READ_SECONDS));
  }

  /** A rate as a share of this one, as text. */
  share(bytesPerSecond: number): string {
    return `, ${(bytesPerSecond / this.best).toFixed(3)} of reading alone (${(this.best / 1e9).toFixed(1)} GB/s)`;
  }
}

const READ_SECONDS = 0.5;

/** Sequences whose tokens or log-probabilities differ from those of an earlier batch. */
function differing(known: Map<number, string>, generated: readonly Generated[]): number {
  let count = 0;
  generated.forEach(({ tokens }, i) => {
    const text = JSON.stringify(tokens);
    if ((known.get(i) ?? text) !== text) count++;
    known.set(i, known.get(i) ?? text);
  });
  return count;
}

/** Calls whose launches are timed. Each launch counts with its fastest time: a busy machine disturbs some of them. */
const PROFILED_CALLS = 12;

/** Time of each kind of kernel, over all layers, measured one launch at a time. */
async function printProfile(profile: () => ReturnType<DeviceExecutor['profile']>): Promise<void> {
  const { launches } = await profile();
  const least = launches.map(({ nanoseconds }) => nanoseconds);
  for (let call = 1; call < PROFILED_CALLS; call++) {
    const again = await profile();
    again.launches.forEach(({ nanoseconds }, i) => (least[i] = Math.min(at(least, i), nanoseconds)));
  }
  const kinds = new Map<string, { count: number; microseconds: number }>();
  // Kernels of one path that follow each other, as a product and the sum of its results, are told apart.
  let [before, nth] = ['', 1];
  launches.forEach(({ path }, i) => {
    nth = path === before ? nth + 1 : 1;
    before = path;
    const kind = path.replace(/^layers\.\d+\./, '') + (nth > 1 ? ` (${nth})` : '');
    const { count, microseconds } = kinds.get(kind) ?? { count: 0, microseconds: 0 };
    kinds.set(kind, { count: count + 1, microseconds: microseconds + at(least, i) / 1000 });
  });
  for (const [kind, { count, microseconds }] of kinds)
    console.log(`  ${kind.padEnd(24)} ${String(count).padStart(3)} × ${(microseconds / count).toFixed(1)} µs`);
  console.log(`  ${'all'.padEnd(24)} ${(least.reduce((sum, each) => sum + each, 0) / 1e6).toFixed(2)} ms`);
}

/** Tokens of a call of prompts, at least. */
const MIN_CALL = 1024;

const pagesFor = (tokens: number): number => Math.ceil(tokens / PAGE_TOKENS);

/** Pages that all sequences of the benchmark need at once. */
function pagesOf({ batch, prompt, new: added, requests, spread, cacheTokens }: GenerateBenchOptions): number {
  if (cacheTokens !== undefined) return Math.floor(cacheTokens / PAGE_TOKENS);
  return requests > 0
    ? requestLengths(requests, spread).reduce((sum, { prompt, answer }) => sum + pagesFor(prompt + answer), 0)
    : pagesFor(prompt + added) * Math.max(...batch);
}

async function main(options: GenerateBenchOptions): Promise<void> {
  const { model: name, target, batch: batches, prompt: promptTokens, new: newTokens, threads } = options;
  const [feeds, sampling] = [options.wait !== true, samplingOf(options)];
  const cacheTokens = pagesOf(options) * PAGE_TOKENS;
  const { model, checkpoint, executor } = await openRandomModel({
    model: name,
    target,
    threads,
    cacheTokens,
    feeds,
    logits: sampling !== undefined,
    ...defined({ isa: options.isa, precision: options.quantize, kvCache: options.kvCache }),
    script: 'bench:generate',
  });
  const busy: number[] = [];
  /** Sequences side by side, and the last call that has a token of each: some end before others. */
  let width = 0;
  let last: CallArrays | undefined;
  /** The call of prompts with most tokens. */
  let longest: CallArrays | undefined;
  const tokensOf = (inputs: CallArrays | undefined): number => inputs?.['tokens']?.length ?? 0;
  const measured: DeviceExecutor = {
    ...executor,
    capacity: executor.capacity,
    call: async (name, inputs, epoch) => {
      if (tokensOf(inputs) === width) last = inputs;
      if (tokensOf(inputs) > Math.max(tokensOf(longest), ...batches)) longest = inputs;
      const result = await executor.call(name, inputs, epoch);
      const spans = result.spans ?? [];
      busy.push(Math.max(...spans.map(({ end }) => end)) - Math.min(...spans.map(({ begin }) => begin)));
      return result;
    },
  };
  const served = deviceModelOf({ executor: measured, checkpoint }, cacheTokens, { feeds });
  // Kernels are compiled beside the work, and those of larger calls would be measured meanwhile.
  await executor.prepare?.();
  const weightBytes = packedWeightBytes(model.plan);
  const rowBytes = model.plan.states.reduce((sum, { columns, dtype }) => sum + columns * DTYPE_BYTES[dtype], 0);
  if (options.requests > 0) {
    const { vocabSize } = checkpoint.config;
    const { perToken: flopsPerToken, perRow: flopsPerRow } = new BatchWork(scoreOf(model.plan));
    const work = { weightBytes, keyBytes: rowBytes, flopsPerToken, flopsPerRow };
    const service = { model: served, busy, vocabSize, work, spread: options.spread, sampling: sampling ?? {} };
    await serve(service, Math.min(options.requests, 32));
    console.log(await serve(service, options.requests));
    await executor.close();
    return;
  }
  console.log(`${name}, ${model.isa}: prompts of ${promptTokens} tokens, ${newTokens} new ones`);
  const known = new Map<number, string>();
  const readRate = target === 'cpu' ? new ReadRate(threads) : undefined;
  for (const batch of batches) {
    const { vocabSize } = checkpoint.config;
    [width, last] = [batch, undefined];
    await readRate?.measure();
    const { generated, decode, onDevices, promptSeconds } = await timed(
      { model: served, busy },
      batch,
      vocabSize,
      options,
    );
    await readRate?.measure();
    if (decode.length === 0)
      throw new UserError(
        `${batch} prompts of ${promptTokens} tokens take so many calls that the first texts end before the last begins`,
        'give --new at least a token for each call of prompts, for example: ' +
          `--new ${newTokens + Math.ceil((batch * promptTokens) / MIN_CALL)}`,
      );
    const milliseconds = median(decode);
    // The host's times are of no use here: where calls overlap, the first one began before the prompt's was read.
    const least = Math.min(...onDevices);
    const device = median(onDevices);
    const bytes = weightBytes + batch * (promptTokens + newTokens / 2) * rowBytes;
    console.log(
      `batch ${batch}: ${milliseconds.toFixed(2)} ms a call (${device.toFixed(2)} on the device), ` +
        `${((1000 * batch) / milliseconds).toFixed(1)} tokens/s, ` +
        `${(bytes / milliseconds / 1e6).toFixed(1)} GB/s; at best ${least.toFixed(2)} ms, ` +
        `${(bytes / least / 1e6).toFixed(1)} GB/s${readRate?.share((1000 * bytes) / least) ?? ''}; prompts ` +
        `${((batch * promptTokens) / promptSeconds).toFixed(0)} tokens/s; ` +
        `${differing(known, generated)} of ${batch} sequences differ from those of smaller batches`,
    );
    const profiled = last;
    if (options.profile === true && profiled !== undefined) await printProfile(() => executor.profile(STEP, profiled));
  }
  const prompts = longest;
  if (options.profile === true && prompts !== undefined) {
    console.log(`a call of ${tokensOf(prompts)} tokens of prompts`);
    await printProfile(() => executor.profile(STEP, prompts));
  }
  await executor.close();
}

export interface GenerateBenchOptions {
  readonly model: string;
  readonly target: BenchTarget;
  /** Ascending. */
  readonly batch: readonly number[];
  readonly prompt: number;
  readonly new: number;
  readonly threads: number;
  readonly isa?: CpuIsa;
  readonly quantize?: Precision;
  readonly profile?: boolean;
  readonly wait?: boolean;
  /** Requests of different lengths, instead of batches; 0 for none. */
  readonly requests: number;
  readonly spread: number;
  readonly cacheTokens?: number;
  readonly kvCache?: KvCache;
  readonly topP?: number;
  readonly topK?: number;
  readonly penalty?: number;
}

export const generateCommand = (): Command =>
  benchCommand(
    'bench:generate',
    'Decoding with random weights: sequences of equal length side by side, as many as --batch says, one new ' +
      'token each in a call. Prints the median time of a call, tokens per second, the bytes that a call must read ' +
      '(weights once, keys and values of every sequence) per second, the same for the fastest call, and whether ' +
      'every sequence got the same bits in every batch. On a CPU the rate is compared with that of threads that ' +
      'only read, measured before and after each batch.',
  )
    .option(
      '--model <path>',
      'folder of a config.json, or one below bench/models, with random weights; or a GGUF file with its own',
      'llama-110m',
    )
    .option('--target <name>', 'cpu or cuda', oneOf(BENCH_TARGETS), 'cpu')
    .option('--batch <list>', 'sequences side by side', list(whole(1, 1024)), [1, 8, 64])
    .option('--prompt <n>', 'tokens of each prompt', whole(1, 65_536), 512)
    .option('--new <n>', 'tokens to generate after each', whole(2, 65_536), 64)
    .option('--threads <n>', 'threads that compute on a CPU', whole(1, 1024), 2)
    .option(
      '--quantize <format>',
      'fp8 (weights and activations), or int4 for a model whose config.json says that it is stored so',
      oneOf(QUANTIZED),
    )
    .option('--isa <name>', `instruction set on a CPU: ${CPU_ISAS.join(', ')} (default: the best)`, oneOf(CPU_ISAS))
    .option(
      '--top-p <p>',
      'sample at temperature 1 with this filter, by a model that chooses from logits; 1 leaves nothing out, so ' +
        'that the head samples',
      decimal(0.001, 1),
    )
    .option('--top-k <n>', 'the same, with this filter; 0 leaves nothing out', whole(0, 1 << 20))
    .option('--penalty <x>', 'the same, with this repetition penalty', decimal(0.1, 10))
    .option('--wait', 'begin a call only when the one before it has been read')
    .option(
      '--requests <n>',
      'requests at once instead, with prompts and answers of different lengths (lognormal, means 215 and 198); ' +
        "prints which calls the time goes to, and the share of an H100's roofline",
      whole(0, 100_000),
      0,
    )
    .option('--spread <x>', 'standard deviation of the logarithm of those lengths', decimal(0.1, 2), SPREAD)
    .option(
      '--cache-tokens <n>',
      'room for keys and values of the requests (default: what all of them need together)',
      whole(PAGE_TOKENS, 1 << 24),
    )
    .option('--kv-cache <format>', 'fp8: keys and values of half the size (default: 16bit)', oneOf(KV_CACHES))
    .option(
      '--profile',
      'also the time of each kind of kernel in a step and in the largest call of prompts, measured one launch at a ' +
        'time: the fastest of 12 for each launch',
    );

/** How tokens are chosen; undefined for the most likely ones, without logits. */
export function samplingOf({ topP, topK, penalty }: GenerateBenchOptions): SamplingOptions | undefined {
  const filters = defined({ topP, topK, repetitionPenalty: penalty });
  return Object.keys(filters).length === 0 ? undefined : { temperature: 1, ...filters };
}

await runProgram(import.meta.url, generateCommand, main);
