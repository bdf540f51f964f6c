/** What a model does at a moment and has done since it was opened, over all its replicas: for whoever watches it. */
import { Buckets, type Tally } from '../system/buckets.js';
import type { AdapterQueue } from './adapterQueue.js';
import type { PagePool } from './pages.js';
import type { Scheduler } from './scheduler.js';

/** Sums since a model was opened, for whoever opened it. */
export interface GeneratorCounts {
  readonly calls: number;
  /** Tokens that calls computed, those of recomputed sequences included. */
  readonly computedTokens: number;
  /** Tokens of prompts that were found in pages. */
  readonly foundTokens: number;
  readonly preemptions: number;
  readonly evictions: number;
  /** Most pages that were held at a time, and all pages. */
  readonly peakPages: number;
  readonly pages: number;
}

/** What one replica does at a moment, and has done. */
export interface ReplicaLoad {
  /** Sequences that steps take, that wait for their first step or for pages, and whose readers are behind. */
  readonly running: number;
  readonly waiting: number;
  readonly paused: number;
  /** Pages that have memory, and those that sequences hold. */
  readonly pages: number;
  readonly heldPages: number;
  /** Steps that the device has answered, and sequences that gave their pages back because others needed them. */
  readonly steps: number;
  readonly preemptions: number;
}

/**
 * What became of the drafts of one drafter. Tokens of a text that a step with drafts gives are one more than accepted:
 * 1 + Σ accepted / rounds in the mean.
 */
export interface DraftStats {
  /** Its name: `suffix`, `ngram`, `model`. */
  readonly drafter: string;
  /** Texts that steps took with drafts, one for each text and step. */
  readonly rounds: number;
  /** By depth, from 1: drafts that steps computed, and those of them that are tokens of texts. */
  readonly drafted: readonly number[];
  readonly accepted: readonly number[];
}

/** Tokens that steps gave texts, and how often a step gave a text some: with drafts it may be several at a time. */
export interface WrittenCounts {
  readonly writtenTokens: number;
  readonly writtenParts: number;
}

/** An adapter that replicas have in a slot, or that sequences ask for. */
export interface AdapterLoad {
  /** SHA-256, hexadecimal, of its content. */
  readonly hash: string;
  /** Replicas that have it in a slot. */
  readonly loaded: number;
  /** Sequences that have pages, and that wait for it or for pages. */
  readonly running: number;
  readonly waiting: number;
}

/** What a model does with adapters of requests. */
export interface AdapterStats {
  /** Slots of each replica, and the largest rank that they hold. */
  readonly slots: number;
  readonly rank: number;
  /** In the order of their hashes. */
  readonly adapters: readonly AdapterLoad[];
  /** Loads that began, those that failed, and adapters that gave their slot to another. */
  readonly loads: number;
  readonly failures: number;
  readonly evictions: number;
}

/** Sums over the replicas of a model. They can be sent to another thread. */
export interface ModelStats extends ReplicaLoad, WrittenCounts {
  /** In the order of their names. */
  readonly drafts: readonly DraftStats[];
  /** Absent: it has no slots for adapters. */
  readonly adapters?: AdapterStats;
  /** Tokens of the prompts of sequences that have begun, and those of them that were found in pages. */
  readonly promptTokens: number;
  readonly foundTokens: number;
  /** New tokens of each step. */
  readonly stepTokens: Tally;
  /** Seconds of each sequence that has ended: until its first step; until its first token; behind it; the last two. */
  readonly queueSeconds: Tally;
  readonly prefillSeconds: Tally;
  readonly decodeSeconds: Tally;
  readonly inferenceSeconds: Tally;
}

/** Bounds of histograms, those of vLLM. */
export const STEP_TOKENS = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384] as const;
export const REQUEST_SECONDS = [
  ...[0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680],
] as const;

/** When what happened to a sequence, in milliseconds of one clock. */
export interface Moments {
  readonly submitted: number;
  /** Its first step was planned. */
  readonly begun: number | undefined;
  /** Its first token was read. */
  readonly firstToken: number | undefined;
}

/** Counts of what the loops of a model's replicas do. */
export class Measures {
  private promptTokens = 0;
  private foundTokens = 0;
  private writtenTokens = 0;
  private writtenParts = 0;
  private readonly drafts = new Map<string, { rounds: number; drafted: number[]; accepted: number[] }>();
  private readonly stepTokens = new Buckets(STEP_TOKENS);
  private readonly queueSeconds = new Buckets(REQUEST_SECONDS);
  private readonly prefillSeconds = new Buckets(REQUEST_SECONDS);
  private readonly decodeSeconds = new Buckets(REQUEST_SECONDS);
  private readonly inferenceSeconds = new Buckets(REQUEST_SECONDS);

  /** A sequence takes part in a step for the first time. */
  begin(promptTokens: number, foundTokens: number): void {
    this.promptTokens += promptTokens;
    this.foundTokens += foundTokens;
  }

  /** A step of that many new tokens was answered. */
  step(tokens: number): void {
    this.stepTokens.add(tokens);
  }

  /** A step gave a text a token: its first of that step, or one behind drafts. */
  write(isFirst: boolean): void {
    this.writtenTokens++;
    if (isFirst) this.writtenParts++;
  }

  /** A step had drafts of a text, so many at each depth from 1, of which so many are its tokens now. */
  draft(drafter: string, drafted: readonly number[], accepted: readonly number[]): void {
    const known = this.drafts.get(drafter) ?? { rounds: 0, drafted: [], accepted: [] };
    this.drafts.set(drafter, known);
    known.rounds++;
    for (let depth = 0; depth < drafted.length; depth++) {
      known.drafted[depth] = (known.drafted[depth] ?? 0) + drafted[depth]!;
      known.accepted[depth] = (known.accepted[depth] ?? 0) + (accepted[depth] ?? 0);
    }
  }

  /** A sequence has ended, at `now`. One that no step has taken has only waited. */
  end({ submitted, begun, firstToken }: Moments, now: number): void {
    this.queueSeconds.add(((begun ?? now) - submitted) / 1000);
    if (begun === undefined) return;
    const answered = firstToken ?? now;
    this.prefillSeconds.add((answered - begun) / 1000);
    this.decodeSeconds.add((now - answered) / 1000);
    this.inferenceSeconds.add((now - begun) / 1000);
  }

  private get draftStats(): readonly DraftStats[] {
    const named = [...this.drafts].map(([drafter, { rounds, drafted, accepted }]) => {
      return { drafter, rounds, drafted: [...drafted], accepted: [...accepted] };
    });
    return named.sort((a, b) => (a.drafter < b.drafter ? -1 : 1));
  }

  get sums(): Omit<ModelStats, keyof ReplicaLoad | 'adapters'> {
    const { promptTokens, foundTokens, writtenTokens, writtenParts } = this;
    return {
      ...{ writtenTokens, writtenParts, drafts: this.draftStats },
      ...{ promptTokens, foundTokens, stepTokens: this.stepTokens.tally(), queueSeconds: this.queueSeconds.tally() },
      ...{ prefillSeconds: this.prefillSeconds.tally(), decodeSeconds: this.decodeSeconds.tally() },
      inferenceSeconds: this.inferenceSeconds.tally(),
    };
  }
}

export function loadOf(
  { running, waiting, adapters, paused, preemptions }: Scheduler,
  pool: PagePool,
  steps: number,
): ReplicaLoad {
  return {
    ...{ running: running.length, waiting: waiting.length + adapters.length, paused: paused.length },
    ...{ pages: pool.total, heldPages: pool.held, steps, preemptions },
  };
}

/** Of replicas that all have the same slots. */
export function adapterStats(
  { count, rank }: { readonly count: number; readonly rank: number },
  replicas: readonly AdapterQueue[],
): AdapterStats {
  const loads = new Map<string, AdapterLoad>();
  for (const { hash, isLoaded, running, waiting } of replicas.flatMap(({ uses }) => uses)) {
    const before = loads.get(hash) ?? { hash, loaded: 0, running: 0, waiting: 0 };
    loads.set(hash, {
      hash,
      loaded: before.loaded + (isLoaded ? 1 : 0),
      running: before.running + running,
      waiting: before.waiting + waiting,
    });
  }
  const sum = (of: (counts: AdapterQueue['counts']) => number): number =>
    replicas.reduce((all, { counts }) => all + of(counts), 0);
  return {
    ...{ slots: count, rank },
    adapters: [...loads.values()].sort((a, b) => (a.hash < b.hash ? -1 : 1)),
    loads: sum((counts) => counts.loads),
    failures: sum((counts) => counts.failures),
    evictions: sum((counts) => counts.evictions),
  };
}
