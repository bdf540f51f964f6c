/** Calls of the benchmark of techniques: over trees, over cached keys and values, and with memory of their own. */
import { defined } from '../system/defined.js';
import { scoredTokens } from '../evaluate/answers.js';
import { fits, packTrees } from '../evaluate/packing.js';
import { layBatch } from '../evaluate/scoreBatches.js';
import type { PathBatch, PathLane, PathScorer, ScoredRows, Scorer, WalkedBatch } from '../evaluate/scorer.js';
import type { TokenizedQuestion } from '../evaluate/tokenize.js';
import { measureTree, type Path, type ScoredToken, type TreeSharing } from '../evaluate/tree.js';
import { planTrees } from '../evaluate/treePlan.js';
import { groupCalls, groupContexts, twoPhase, type TwoPhaseOptions } from '../evaluate/twoPhase.js';
import { orderPaths, pathsOf } from '../evaluate/pathOrder.js';
import { walk } from '../evaluate/walk.js';
import { loadAddon } from '../runtime/addon.js';
import { requireCuda } from '../runtime/cuda/addon.js';
import type { BenchTarget } from './command.js';

/** A launch of a kernel and how long it took. */
export interface TimedLaunch {
  /** Model path of the kernel, such as `layers.3.attention.qkv`. */
  readonly path: string;
  readonly nanoseconds: number;
}

export interface AblationEngine {
  /** Trees, in which keys and values last for a call. */
  readonly scorer: Scorer;
  /** Paths over cached keys and values. */
  readonly lane: PathLane;
  readonly limits: PathScorer['limits'];
  /** Makes a call of the lane and times each launch. */
  profile(batch: PathBatch): Promise<readonly TimedLaunch[]>;
  /** Memory on the device for the keys and values of so many tokens, ready to be written. */
  allocate(tokens: number): { release(): void };
}

/** A call that waits to be made. */
export interface TechniqueCall {
  readonly tokens: number;
  readonly scored: readonly ScoredToken[];
  score(): Promise<ScoredRows>;
  /** Makes the call and times each launch. */
  profile?(): Promise<readonly TimedLaunch[]>;
}

/** Micro-batches as `run` packs them. */
export function* packedCalls(
  { scorer }: AblationEngine,
  questions: readonly TokenizedQuestion[],
  sharing: TreeSharing,
): Generator<TechniqueCall> {
  const { trees } = planTrees(questions, sharing, scorer);
  for (const { items } of packTrees(trees, scorer))
    yield scoreCall(
      scorer,
      items.map(({ paths }) => paths),
      sharing,
    );
}

/** Choices one after another, each a sequence of its own, as many as a batch has or as fit. */
export function* fixedCalls(
  { scorer }: AblationEngine,
  paths: readonly Path[],
  sequences: number,
): Generator<TechniqueCall> {
  for (let from = 0; from < paths.length;) {
    let end = from + 1;
    while (
      end < Math.min(from + sequences, paths.length) &&
      fits(measureTree(paths.slice(from, end + 1), 'none'), scorer)
    )
      end++;
    yield scoreCall(
      scorer,
      paths.slice(from, end).map((path) => [path]),
      'none',
    );
    from = end;
  }
}

function scoreCall(scorer: Scorer, groups: readonly (readonly Path[])[], sharing: TreeSharing): TechniqueCall {
  const { batch, answers } = layBatch(groups, sharing);
  return { tokens: batch.tokens.length, scored: scoredTokens(answers), score: () => scorer.score(batch) };
}

const stepCall = ({ lane, profile }: AblationEngine, { batch, scored }: WalkedBatch): TechniqueCall => ({
  tokens: batch.tokens.length,
  scored,
  score: () => lane.score(batch),
  profile: () => profile(batch),
});

export function* stepCalls(engine: AblationEngine, walked: Iterable<WalkedBatch>): Generator<TechniqueCall> {
  for (const each of walked) yield stepCall(engine, each);
}

/** Two phases whose groups allocate memory, each at its first call, and free that of the group before. */
export function* allocatingCalls(engine: AblationEngine, paths: readonly Path[]): Generator<TechniqueCall> {
  const { limits } = engine;
  const groups = groupContexts(paths, { limits });
  let held: { release(): void } | undefined;
  for (const [g, { paths: own, tokens }] of groups.entries()) {
    const calls = [...groupCalls(own, { limits })].map((each) => stepCall(engine, each));
    for (const [c, call] of calls.entries()) {
      const isFirst = c === 0;
      const isLast = g === groups.length - 1 && c === calls.length - 1;
      const score = async (): Promise<ScoredRows> => {
        if (isFirst) {
          held?.release();
          held = engine.allocate(tokens);
        }
        const rows = await call.score();
        if (isLast) held?.release();
        return rows;
      };
      yield { ...call, score };
    }
  }
}

/**
 * How much longer calls would take if the last layer's kernels took as long as those of the layer before. Each launch
 * counts with its fastest time of all measurements, because a busy machine disturbs some of them.
 */
export class UnprunedTime {
  /** By call and launch. */
  private readonly least: number[][] = [];

  /** Makes the calls, the same ones each time. Seconds, by all measurements so far. */
  async measure(calls: Iterable<TechniqueCall>): Promise<number> {
    let [nanoseconds, index] = [0, 0];
    for (const { profile } of calls) {
      const least = (this.least[index++] ??= []);
      const byLayer: number[] = [];
      const launches = (await profile?.()) ?? [];
      launches.forEach(({ path, nanoseconds: time }, i) => {
        least[i] = Math.min(least[i] ?? Infinity, time);
        const layer = Number(/^layers\.(\d+)\./.exec(path)?.[1] ?? NaN);
        if (!Number.isNaN(layer)) byLayer[layer] = (byLayer[layer] ?? 0) + least[i];
      });
      nanoseconds += (byLayer.at(-2) ?? NaN) - (byLayer.at(-1) ?? NaN);
    }
    return nanoseconds / 1e9;
  }
}

/** The techniques that the benchmark of techniques compares, each as the calls that score a set of questions. */

export interface Technique {
  readonly name: string;
  readonly questions: readonly TokenizedQuestion[];
  calls(): Iterable<TechniqueCall>;
  /** What is added to the time of the calls, in seconds, by all measurements so far; makes them again. */
  added?(): Promise<number>;
}

export interface TechniqueOptions {
  /** Sequences of a fixed batch. */
  readonly sequences: number;
  /** Tokens of a call of contexts, where they are computed in small calls. */
  readonly prefill: number;
}

/** What the techniques are applied to. */
export interface TechniqueInputs {
  readonly engine: AblationEngine;
  readonly questions: readonly TokenizedQuestion[];
  /** The same without their activity labels. */
  readonly unlabelled: readonly TokenizedQuestion[];
  readonly options: TechniqueOptions;
}

/** A row of the table. */
interface Row {
  readonly name: (options: TechniqueOptions) => string;
  /** For the help of the benchmark. */
  readonly meaning: string;
  readonly isUnlabelled?: boolean;
  readonly calls: (
    engine: AblationEngine,
    questions: readonly TokenizedQuestion[],
    options: TechniqueOptions,
  ) => Iterable<TechniqueCall>;
  readonly isUnpruned?: boolean;
}

const inPhases =
  (more: (options: TechniqueOptions) => Omit<TwoPhaseOptions, 'limits'> = () => ({})): Row['calls'] =>
  (engine, questions, options) =>
    stepCalls(engine, twoPhase(pathsOf(questions), { limits: engine.limits, ...more(options) }));

/** The first one is what the others are compared with. */
const ROWS: readonly Row[] = [
  {
    name: () => 'one forward over trees',
    meaning: 'every common beginning once, in one call with its continuations: run --sharing tree',
    calls: (engine, questions) => packedCalls(engine, questions, 'tree'),
  },
  {
    name: ({ sequences }) => `sequence per choice, ${sequences} a call`,
    meaning: 'context and choice again for every choice, in fixed batches: --sequences of them',
    calls: (engine, questions, { sequences }) => fixedCalls(engine, pathsOf(questions), sequences),
  },
  {
    name: () => 'sequence per choice, calls filled',
    meaning: 'the same in dynamic batches, which take as many tokens as a call holds: run --sharing none',
    calls: (engine, questions) => packedCalls(engine, questions, 'none'),
  },
  {
    name: ({ sequences }) => `contexts, then choices, ${sequences} a call`,
    meaning: 'choices continue the kept keys and values of contexts; fixed batches of both',
    calls: inPhases(({ sequences }) => ({ sequences })),
  },
  {
    name: () => 'contexts, then choices, calls filled',
    meaning: 'the same in dynamic batches: run --sharing kv',
    calls: inPhases(),
  },
  {
    name: () => '… without activity labels',
    meaning: 'shorter prompts: other questions, with other answers',
    isUnlabelled: true,
    calls: inPhases(),
  },
  {
    name: ({ prefill }) => `… contexts in calls of ${prefill} tokens`,
    meaning: 'mini-batched prefill: small calls for contexts (--prefill), full ones for choices',
    calls: inPhases(({ prefill }) => ({ prefillTokens: prefill })),
  },
  {
    name: () => '… last layer for every token',
    meaning: 'without pruning: adds what the kernels of the layer before take more than those of the last one',
    calls: inPhases(),
    isUnpruned: true,
  },
  {
    name: () => '… memory for each group of contexts',
    meaning: 'pages not allocated before: allocates and frees what keys and values of a group take',
    calls: (engine, questions) => allocatingCalls(engine, pathsOf(questions)),
  },
  {
    name: () => 'one forward over shared contexts',
    meaning: 'a context once, in one call with its choices: run --sharing context',
    calls: (engine, questions) => packedCalls(engine, questions, 'context'),
  },
  {
    name: () => 'trees whose beginnings are kept',
    meaning: 'keys and values of a beginning last from call to call: run --prefixes keep',
    calls: (engine, questions) => stepCalls(engine, walk(orderPaths(pathsOf(questions)).paths, engine.limits)),
  },
  {
    name: () => 'one forward over trees, without activity labels',
    meaning: 'the first row with the shorter prompts',
    isUnlabelled: true,
    calls: (engine, questions) => packedCalls(engine, questions, 'tree'),
  },
];

/** A line for each row with what it is. */
export const describeRows = (options: TechniqueOptions): string =>
  ROWS.map(({ name, meaning }) => `  ${name(options)}\n      ${meaning}`).join('\n');

/** The first one is what the others are compared with. */
export const techniquesOf = ({ engine, questions, unlabelled, options }: TechniqueInputs): readonly Technique[] =>
  ROWS.map(({ name, isUnlabelled = false, isUnpruned = false, calls }) => {
    const own = isUnlabelled ? unlabelled : questions;
    const unpruned = isUnpruned ? new UnprunedTime() : undefined;
    const make = (): Iterable<TechniqueCall> => calls(engine, own, options);
    return {
      name: name(options),
      questions: own,
      calls: make,
      ...defined({ added: unpruned && (() => unpruned.measure(make())) }),
    };
  });

/** Memory where keys and values lie, to measure what allocating it takes. */

/** The system hands memory of a host out in such pieces, each at the first write to it. */
const PAGE_BYTES = 4096;

export interface Allocator {
  /** Memory that can be written at once. */
  allocate(bytes: number): { release(): void };
  close(): void;
}

/** For the host, or for the first GPU. */
export function allocatorOf(target: BenchTarget): Allocator {
  if (target === 'cpu') {
    const { Memory } = loadAddon();
    const byte = Uint8Array.of(1);
    return {
      allocate: (bytes) => {
        const memory = new Memory(bytes);
        for (let at = 0; at < bytes; at += PAGE_BYTES) memory.write(at, byte);
        return memory;
      },
      close: () => undefined,
    };
  }
  const { Device, Memory } = requireCuda();
  const device = new Device(0);
  return {
    allocate: (bytes) => new Memory(device, bytes),
    close: () => {
      device.release();
    },
  };
}
