/**
 * `npm run bench:two-models`: two models in one engine that share a device and its memory for keys and values, under a
 * load that changes: memory that moves by itself against nine fixed splits.
 */
import type { Command } from 'commander';
import { stepBudget } from '../commands/stepBudget.js';
import { deviceModelOf } from '../driver/devices/deviceModel.js';
import type { DeviceExecutor } from '../driver/executor.js';
import { Engine } from '../engine/engine.js';
import { MemoryBudget } from '../engine/memory.js';
import { PAGE_TOKENS } from '../engine/pages.js';
import { RESERVED_ROWS } from '../ir/function.js';
import { takesLastTokens } from '../ir/stepping.js';
import type { Checkpoint } from '../models/checkpoint.js';
import { defined } from '../system/defined.js';
import {
  BENCH_TARGETS,
  benchCommand,
  type BenchTarget,
  decimal,
  list,
  oneOf,
  runProgram,
  text,
  whole,
} from './command.js';
import { openRandomModel } from './inputs.js';
import { PHASES, textLengths } from './memoryLoads.js';
import { randomOf } from './memorySimulation.js';
import { promptOf } from './requestLengths.js';

/** Shares of the first model, in percent. Good ones come first, so that bad ones can be cut short. */
const SHARES: readonly number[] = [30, 40, 20, 50, 60, 10, 70, 80, 90];
/** A run that takes so many times as long as the best one ends there. */
const PATIENCE = 2;
/** Tokens that a model has memory for when a run begins. */
const FIRST_TOKENS = 1024;

interface Opened {
  readonly name: string;
  readonly executor: DeviceExecutor;
  readonly checkpoint: Checkpoint;
  readonly feeds: boolean;
  readonly besideTokens: number;
}

interface Run {
  readonly tokens: number;
  readonly seconds: number;
  readonly moves: number;
  readonly movedBytes: number;
  readonly preemptions: number;
  readonly isCut: boolean;
}

async function open(model: string, name: string, options: TwoModelsOptions): Promise<Opened> {
  const { target, threads } = options;
  const opened = await openRandomModel({
    ...{ model, target, threads, feeds: true, cacheTokens: FIRST_TOKENS, script: 'bench:two-models' },
  });
  const { plan } = opened.model;
  return {
    ...{ name, executor: opened.executor, checkpoint: opened.checkpoint },
    ...{ feeds: takesLastTokens(plan), besideTokens: stepBudget(plan) },
  };
}

/** The load once, with memory as it is when models have just been opened. */
async function run(
  models: readonly Opened[],
  options: TwoModelsOptions,
  share?: number,
  most = Infinity,
): Promise<Run> {
  const split = share === undefined ? undefined : [share, 100 - share];
  const budget = new MemoryBudget({ bytes: options.gigabytes * 1e9, ...defined({ split }) });
  const engine = new Engine();
  for (const { name, executor, checkpoint, ...rest } of models) {
    await executor.resize?.(FIRST_TOKENS);
    engine.load(name, { replicas: [deviceModelOf({ executor, checkpoint }, RESERVED_ROWS, { ...rest, budget })] });
  }
  await budget.settled();
  if (models.some(({ name }) => engine.limitsOf(name).room < options.longest)) {
    await engine.close();
    return { tokens: 0, seconds: Infinity, moves: 0, movedBytes: 0, preemptions: 0, isCut: false };
  }
  const random = randomOf(1);
  const stop = new AbortController();
  const started = performance.now();
  const secondsNow = (): number => (performance.now() - started) / 1000;
  const timer = Number.isFinite(most) ? setTimeout(() => stop.abort(), 1000 * most) : undefined;
  let tokens = 0;
  for (const counts of PHASES) {
    const texts = models.flatMap(({ name, checkpoint: { config } }, i) =>
      Array.from({ length: Math.ceil(counts[i]! * options.scale) }, (_, k) => {
        const { prompt, answer } = textLengths(random, Math.min(config.maxPositions, options.longest));
        const request = { prompt: promptOf(1000 * i + k, prompt, config.vocabSize), maxNewTokens: answer };
        return { kind: 'generate', model: name, ...request, signal: stop.signal } as const;
      }),
    );
    const done = await Promise.all(texts.map((each) => engine.submit(each).result()));
    for (const all of done) for (const each of all) tokens += each.tokens.length;
    if (options.verbose === true) console.error(`  ${counts.join(' + ')} texts until ${secondsNow().toFixed(1)} s`);
  }
  const seconds = secondsNow();
  clearTimeout(timer);
  const preemptions = models.reduce((sum, { name }) => sum + engine.countsOf(name).preemptions, 0);
  await budget.settled();
  await engine.close();
  const { moves, movedBytes } = budget;
  return { tokens, seconds, moves, movedBytes, preemptions, isCut: stop.signal.aborted };
}

const rateOf = ({ tokens, seconds }: Run): number => tokens / seconds;

async function main(options: TwoModelsOptions): Promise<void> {
  const models: Opened[] = [];
  try {
    for (const [i, model] of options.models.entries())
      models.push(await open(model, `${i === 0 ? 'first' : 'second'} ${model}`, options));
    const pieces = models.map(({ name, executor: { pieces } }) => {
      const { tokens = 0, bytes = 0 } = pieces ?? {};
      return `${name}: pieces of ${tokens} tokens, ${(bytes / 2 ** 20).toFixed(1)} MiB`;
    });
    console.log(`${pieces.join('; ')}; ${options.gigabytes} GB in all, pages of ${PAGE_TOKENS} tokens`);
    for (const { executor } of models) await executor.prepare?.();
    await run(models, { ...options, scale: options.scale / 8 });
    const own = await run(models, options);
    const runs: { readonly name: string; readonly run: Run }[] = [{ name: 'by itself', run: own }];
    let best = own.seconds;
    for (const share of options.shares ?? SHARES) {
      const fixed = await run(models, options, share, PATIENCE * best);
      best = Math.min(best, fixed.seconds);
      runs.push({ name: `${share} : ${100 - share}`, run: fixed });
      console.error(`${share} : ${100 - share}: ${rateOf(fixed).toFixed(0)} tokens/s`);
    }
    // The device may have become warmer, or cooler: the last run is as far from the fixed ones as the first.
    runs.push({ name: 'by itself, again', run: await run(models, options) });
    const fixed = Math.max(...runs.filter(({ name }) => name.includes(':')).map((each) => rateOf(each.run)));
    console.log(
      '| split | tokens/s | of the best fixed | seconds | moves | GB moved | preemptions |\n' + `|${'---|'.repeat(7)}`,
    );
    for (const { name, run: each } of runs) {
      const { seconds, moves, movedBytes, preemptions, isCut } = each;
      const cells = [
        name,
        rateOf(each).toFixed(0),
        (rateOf(each) / fixed).toFixed(3),
        isCut ? `${seconds.toFixed(1)}, cut short` : seconds < Infinity ? seconds.toFixed(1) : 'a text does not fit',
        String(moves),
        (movedBytes / 1e9).toFixed(2),
        String(preemptions),
      ];
      console.log(`| ${cells.join(' | ')} |`);
    }
  } finally {
    for (const { executor } of models) await executor.close();
  }
}

export interface TwoModelsOptions {
  readonly models: readonly string[];
  readonly target: BenchTarget;
  readonly threads: number;
  readonly gigabytes: number;
  readonly scale: number;
  readonly longest: number;
  readonly shares?: readonly number[];
  readonly verbose?: boolean;
}

export const twoModelsCommand = (): Command =>
  benchCommand(
    'bench:two-models',
    'Two models with random weights in one engine. Their requests come in phases: both work, one works alone, one ' +
      'works more than the other. Prints new tokens a second, over all phases, for memory that moves by itself and ' +
      'for nine fixed splits (the share of the first model in percent), and the ratio to the best of those. A run ' +
      'that takes twice as long as the best one is cut short.',
  )
    .option('--models <list>', 'two folders of a config.json, or below bench/models', list(text), [
      'llama-1.1b',
      'llama-8b',
    ])
    .option('--target <name>', 'cpu or cuda', oneOf(BENCH_TARGETS), 'cuda')
    .option('--threads <n>', 'threads of each model on a CPU', whole(1, 1024), 1)
    .option('--gigabytes <n>', 'memory for keys and values of both', decimal(0.001, 1000), 4)
    .option('--scale <x>', 'how many requests, times those of the simulation (bench:memory)', decimal(0.001, 100), 0.4)
    .option('--longest <n>', 'most tokens of a text, with its prompt', whole(64, 65_536), 1536)
    .option('--shares <list>', 'fixed splits to measure', list(whole(1, 99)))
    .option('--verbose', 'the time of each phase, on the standard error');

await runProgram(import.meta.url, twoModelsCommand, main);
