/** What a measured search came to, as numbers and lines of a table. */
import type { Engine } from '../engine/engine.js';
import type { ProblemResult } from '../search/result.js';

export const ROLES = ['generator', 'verifier'] as const;
export type Role = (typeof ROLES)[number];

/** What a model does at a moment. Pages are those with memory, and those that sequences hold. */
export interface ModelMoment {
  readonly pages: number;
  readonly held: number;
  readonly running: number;
  readonly waiting: number;
}

export interface Moment extends Readonly<Record<Role, ModelMoment>> {
  /** Since the run began. */
  readonly seconds: number;
}

export interface ModelWork {
  /** Tokens that calls computed, and calls. */
  readonly computedTokens: number;
  readonly calls: number;
  readonly foundTokens: number;
  readonly preemptions: number;
  readonly evictions: number;
}

export interface SearchFigures extends Readonly<Record<Role, ModelWork>> {
  readonly problems: number;
  readonly seconds: number;
  /** Iterations of all problems, and tokens that were drawn in them. */
  readonly iterations: number;
  readonly tokens: number;
  /** Tokens of the verifier that different paths consist of: the least that must be computed. */
  readonly verifierNeeded: number;
  /** Of this process, which schedules; devices have another. */
  readonly cpuSeconds: number;
  readonly moments: readonly Moment[];
  /** By problem; undefined where the run was cut before it ended. */
  readonly results: readonly (ProblemResult | undefined)[];
  /** Most problems at once. */
  readonly peakProblems: number;
  /** Ended by the limit of time. */
  readonly isCut: boolean;
}

/** A run with the name that it has in tables. */
export interface NamedRun {
  readonly name: string;
  /** Where it lies on the axis of its study. */
  readonly at: number;
  readonly figures: SearchFigures;
}

/** Looks at an engine's models from time to time. */
export class MomentLog {
  readonly moments: Moment[] = [];
  private readonly engine: Engine;
  private readonly started = performance.now();
  private readonly timer: NodeJS.Timeout;

  constructor(engine: Engine, everyMs = 250) {
    this.engine = engine;
    this.timer = setInterval(() => this.look(), everyMs);
    this.look();
  }

  private look(): void {
    const of = (role: Role): ModelMoment => {
      const { pages, heldPages: held, running, waiting } = this.engine.statsOf(role);
      return { pages, held, running, waiting };
    };
    this.moments.push({
      seconds: (performance.now() - this.started) / 1000,
      generator: of('generator'),
      verifier: of('verifier'),
    });
  }

  /** Ends the log. */
  end(): readonly Moment[] {
    clearInterval(this.timer);
    this.look();
    return this.moments;
  }
}

/** Of a run that was cut, each iteration counts as its part of a problem that has `depth` of them. */
export const problemsAnHour = ({ problems, seconds, isCut, iterations }: SearchFigures, depth: number): number =>
  (3600 * (isCut ? iterations / depth : problems)) / seconds;

export const COLUMNS: readonly string[] = [
  ...['', 'problems/h', 'seconds', 'generator tokens/s', 'verifier tokens/s', 'computed ÷ needed'],
  ...['problems at once', 'preemptions', 'evictions', 'host µs/token'],
];

/** A row of `COLUMNS`. */
export function rowOf(name: string, figures: SearchFigures, depth: number): readonly string[] {
  const { seconds, tokens, generator, verifier, verifierNeeded, cpuSeconds, isCut, peakProblems } = figures;
  return [
    name,
    problemsAnHour(figures, depth).toFixed(0),
    `${seconds.toFixed(1)}${isCut ? ', cut' : ''}`,
    (tokens / seconds).toFixed(0),
    (verifier.computedTokens / seconds).toFixed(0),
    verifierNeeded > 0 ? (verifier.computedTokens / verifierNeeded).toFixed(3) : '–',
    String(peakProblems),
    `${generator.preemptions} + ${verifier.preemptions}`,
    `${generator.evictions} + ${verifier.evictions}`,
    tokens > 0 ? ((1e6 * cpuSeconds) / tokens).toFixed(1) : '–',
  ];
}

/** Problems whose picked text differs, and steps of trees that have another fate. */
export interface ChangedPicks {
  readonly problems: number;
  readonly picks: number;
  /** Of those drawn in both: until a tree differs, its iterations hold the same texts. */
  readonly iterations: number;
  readonly equalIterations: number;
  /** Mean and largest distance of scores of equal steps. */
  readonly meanDistance: number;
  readonly mostDistance: number;
}

/** What another verifier changes in the same searches. */
export function changedPicks(one: SearchFigures['results'], other: SearchFigures['results']): ChangedPicks {
  let [problems, picks, iterations, equalIterations, steps, sum, most] = [0, 0, 0, 0, 0, 0, 0];
  one.forEach((result, i) => {
    const beside = other[i];
    if (result === undefined || beside === undefined) return;
    problems++;
    const textOf = ({ candidates, picked }: ProblemResult): string | undefined =>
      picked === null ? undefined : candidates[picked]?.text;
    if (textOf(result) !== textOf(beside)) picks++;
    const count = 1 + Math.max(-1, ...result.tree.map(({ iteration }) => iteration));
    iterations += count;
    for (let at = 0; at < count; at++) {
      const [mine, theirs] = [result, beside].map(({ tree }) => tree.filter(({ iteration }) => iteration === at));
      const isDrawnAlike =
        mine!.length === theirs!.length &&
        mine!.every(({ text, parent }, k) => text === theirs![k]!.text && parent === theirs![k]!.parent);
      if (!isDrawnAlike) break;
      mine!.forEach(({ aggregate }, k) => {
        const distance = Math.abs((aggregate ?? NaN) - (theirs![k]!.aggregate ?? NaN));
        if (Number.isNaN(distance)) return;
        steps++;
        sum += distance;
        most = Math.max(most, distance);
      });
      if (!mine!.every(({ fate }, k) => fate === theirs![k]!.fate)) break;
      equalIterations++;
    }
  });
  return {
    ...{ problems, picks, iterations, equalIterations },
    ...{ meanDistance: steps > 0 ? sum / steps : 0, mostDistance: most },
  };
}
