/** `npm run bench:memory`: memory that moves by itself against nine fixed splits, under simulated loads. */
import type { Command } from 'commander';
import { MemoryBudget } from '../engine/memory.js';
import { benchCommand, decimal, runProgram } from './command.js';
import { LARGE, randomOf, SimulatedModel, SimulatedPath, Simulation, SMALL } from './memorySimulation.js';

/** Shares of the first model, in percent. */
export const FIXED_SHARES: readonly number[] = [10, 20, 30, 40, 50, 60, 70, 80, 90];

interface Load {
  readonly name: string;
  /** Submits requests, now and later. */
  start(simulation: Simulation, small: SimulatedModel, large: SimulatedModel): void;
}

/** Prompts of up to a third of `longest` tokens, and answers of up to two thirds. */
export function textLengths(
  random: () => number,
  longest = 1536,
): { readonly prompt: number; readonly answer: number } {
  const third = longest / 3;
  return {
    prompt: Math.ceil(third / 8 + (third * 7 * random()) / 8),
    answer: Math.ceil(third / 4 + third * 1.75 * random()),
  };
}

/** Texts of the small and the large model in each phase of bench:two-models, which begins when the one before ends. */
export const PHASES: readonly (readonly [number, number])[] = [
  [700, 110],
  [700, 0],
  [0, 110],
  [600, 20],
  [60, 100],
];

function submitTexts(model: SimulatedModel, count: number, random: () => number, done: () => void = () => {}): void {
  let left = count;
  if (count === 0) done();
  for (let i = 0; i < count; i++)
    model.submit({
      path: new SimulatedPath(),
      ...textLengths(random),
      done: () => {
        if (--left === 0) done();
      },
    });
}

/** `count` texts, of which `parallel` are in work at any time. */
function keepBusy(
  model: SimulatedModel,
  count: number,
  parallel: number,
  random: () => number,
  done: () => void = () => {},
): void {
  let [begun, ended] = [0, 0];
  const next = (): void => {
    if (begun === count) return;
    begun++;
    submitTexts(model, 1, random, () => {
      if (++ended === count) done();
      next();
    });
  };
  for (let i = 0; i < parallel; i++) next();
}

/** Calls `each` with 0 to `count` − 1, one after another, as each has called back. */
function inTurn(count: number, each: (i: number, done: () => void) => void, i = 0): void {
  if (i < count) each(i, () => inTurn(count, each, i + 1));
}

/**
 * Beam search over `problems`, `parallel` at a time: the small model writes steps, the large one scores their paths.
 */
function search(
  small: SimulatedModel,
  large: SimulatedModel,
  problems: number,
  parallel: number,
  random: () => number,
) {
  const [beams, width, depth, stepTokens] = [16, 4, 10, 64];
  let begun = 0;
  const solve = (): void => {
    if (begun++ >= problems) return;
    const prompt = 150 + Math.floor(150 * random());
    const stems = { small: new SimulatedPath(), large: new SimulatedPath() };
    let paths = Array.from({ length: beams }, () => ({
      small: stems.small.fork(prompt),
      large: stems.large.fork(prompt),
    }));
    inTurn(depth, (i, next) => {
      const length = prompt + i * stepTokens;
      let left = beams;
      for (const { small: own, large: judged } of paths)
        small.submit({
          path: own,
          prompt: length,
          answer: Math.floor(stepTokens * (0.5 + 0.5 * random())),
          done: () =>
            large.submit({
              path: judged,
              prompt: length + stepTokens + 11,
              answer: 1,
              done: () => {
                if (--left > 0) return;
                const best = paths.filter(() => random() < width / beams).slice(0, beams / width);
                const kept = best.length > 0 ? best : paths.slice(0, 1);
                paths = Array.from({ length: beams }, (_, k) => {
                  const from = kept[k % kept.length]!;
                  const to = length + stepTokens;
                  return { small: from.small.fork(to), large: from.large.fork(to) };
                });
                if (i + 1 === depth) solve();
                next();
              },
            }),
        });
    });
  };
  for (let i = 0; i < parallel; i++) solve();
}

/** How much of the full load a test simulates. */
export const loadsOf = (scale: number): readonly Load[] => {
  const many = (count: number): number => Math.max(4, Math.round(count * scale));
  return [
    {
      name: 'steady',
      start: (_, small, large) => {
        const random = randomOf(1);
        submitTexts(small, many(6000), random);
        submitTexts(large, many(900), random);
      },
    },
    {
      name: 'one at a time',
      start: (_, small, large) => {
        const random = randomOf(2);
        inTurn(4, (i, done) => submitTexts(i % 2 === 0 ? small : large, many(i % 2 === 0 ? 3000 : 500), random, done));
      },
    },
    {
      name: 'swings',
      start: (_, small, large) => {
        const random = randomOf(3);
        inTurn(6, (i, done) => {
          let left = 2;
          const ended = (): void => {
            if (--left === 0) done();
          };
          const isSmall = i % 2 === 0;
          keepBusy(small, many(isSmall ? 2000 : 200), isSmall ? 500 : 16, random, ended);
          keepBusy(large, many(isSmall ? 50 : 400), isSmall ? 4 : 200, random, ended);
        });
      },
    },
    {
      name: 'phases',
      start: (_, small, large) => {
        const random = randomOf(8);
        inTurn(PHASES.length, (i, done) => {
          let left = 2;
          const ended = (): void => {
            if (--left === 0) done();
          };
          const [some, others] = PHASES[i]!.map((count) => Math.ceil(2 * scale * count)) as [number, number];
          submitTexts(small, some, random, ended);
          submitTexts(large, others, random, ended);
        });
      },
    },
    {
      name: 'bursts',
      start: (simulation, small, large) => {
        const random = randomOf(4);
        keepBusy(small, many(9000), 400, random);
        for (let i = 0; i < 8; i++)
          simulation.after(6 * i * Math.max(0.2, scale), () => submitTexts(large, many(80), random));
      },
    },
    {
      name: 'search, 8 problems',
      start: (_, small, large) => search(small, large, many(60), 8, randomOf(5)),
    },
    {
      name: 'search, 32 problems',
      start: (_, small, large) => search(small, large, many(120), 32, randomOf(6)),
    },
    {
      name: 'search beside texts',
      start: (_, small, large) => {
        const random = randomOf(7);
        search(small, large, many(60), 12, random);
        submitTexts(small, many(3000), random);
      },
    },
  ];
};

export interface SimulatedRun {
  readonly seconds: number;
  /** Tokens that requests asked for, a second. */
  readonly tokensPerSecond: number;
  readonly moves: number;
  readonly movedBytes: number;
  readonly preemptions: number;
}

/** Two models with `bytes` for keys and values under a load: split by itself, or with `share` percent for the first. */
export async function simulate(load: Load, bytes: number, share?: number): Promise<SimulatedRun> {
  const [small, large] = [new SimulatedModel(SMALL, bytes), new SimulatedModel(LARGE, bytes)];
  const simulation = new Simulation([small, large]);
  const budget = new MemoryBudget({
    bytes,
    now: () => simulation.now,
    after: () => undefined,
    ...(share === undefined ? {} : { split: [share, 100 - share] }),
  });
  for (const model of [small, large]) budget.add(model);
  for (let i = 0; i < 20; i++) {
    for (const model of [small, large]) model.begin(0);
    await new Promise((resolve) => setImmediate(resolve));
  }
  await budget.settled();
  load.start(simulation, small, large);
  await simulation.run((model) => {
    const before = budget.isMoving;
    budget.report(model);
    return before || budget.isMoving ? Promise.resolve() : undefined;
  });
  const tokens = small.usefulTokens + large.usefulTokens;
  const { moves, movedBytes } = budget;
  const preemptions = small.preemptions + large.preemptions;
  return { seconds: simulation.now, tokensPerSecond: tokens / simulation.now, moves, movedBytes, preemptions };
}

async function main({ gigabytes, scale }: { readonly gigabytes: number; readonly scale: number }): Promise<void> {
  const columns = [
    'load',
    ...FIXED_SHARES.map((share) => `${share} %`),
    'by itself',
    'of the best',
    'moves',
    'GB moved',
  ];
  console.log(`| ${columns.join(' | ')} |\n|${'---|'.repeat(columns.length)}`);
  for (const load of loadsOf(scale)) {
    const fixed: number[] = [];
    for (const share of FIXED_SHARES) fixed.push((await simulate(load, gigabytes * 1e9, share)).tokensPerSecond);
    const { tokensPerSecond, moves, movedBytes } = await simulate(load, gigabytes * 1e9);
    const cells = [
      load.name,
      ...[...fixed, tokensPerSecond].map((rate) => rate.toFixed(0)),
      (tokensPerSecond / Math.max(...fixed)).toFixed(3),
      String(moves),
      (movedBytes / 1e9).toFixed(1),
    ];
    console.log(`| ${cells.join(' | ')} |`);
  }
}

const memoryCommand = (): Command =>
  benchCommand(
    'bench:memory',
    'Simulates a 1B and an 8B model that share an H100 and memory for keys and values, under loads that change. ' +
      'Prints tokens a second for nine fixed splits (the share of the 1B model) and for memory that moves by itself.',
  )
    .option('--gigabytes <n>', 'memory for keys and values', decimal(0.5, 100), 8)
    .option('--scale <x>', 'length of each load', decimal(0.01, 10), 1);

await runProgram(import.meta.url, memoryCommand, main);
