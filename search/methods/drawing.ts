/**
 * Draws and scores the paths of a problem, all of an iteration at the same time. A path is scored as soon as its step
 * is there. While paths are still drawn or scored, children of those that will probably survive may be drawn: a child's
 * draw does not depend on when it is made, and those that turn out not to be needed are aborted. Until its score is
 * there, a path is taken to be as good as its parent: scores of steps that follow each other are mostly close.
 */
import { candidateOf, drawSeed } from '../draws.js';
import { extend, type Path, type Problem, rootOf, type Step } from '../path.js';
import type { SearchPlan } from '../plan.js';
import { type PathJudge, PathFailed, type StepWriter } from '../ports.js';
import { aggregateScores } from './aggregate.js';
import { type Child, type Drawn, type PathState, stateAfter } from './drawn.js';

export interface Models {
  readonly writer: StepWriter;
  readonly judge: PathJudge | undefined;
}

/** A path with its new steps, and those ahead of it; not scored. */
interface Extension {
  readonly path: Path;
  readonly isStepDrawn: boolean;
  readonly ahead: readonly Step[];
  readonly state: PathState;
  readonly error?: string;
}

interface Running {
  readonly controller: AbortController;
  readonly extension: Promise<Extension>;
}

export interface Guess {
  /** Children that are probably needed. */
  readonly wanted: readonly Child[];
  /** Whether children of the path at this place may still be needed. */
  isOpen(place: number): boolean;
}

export interface Round {
  readonly children: readonly Child[];
  /** The number of its first step. */
  readonly iteration: number;
  /** How many steps are drawn before they are scored. */
  readonly steps: number;
  readonly toEnd: boolean;
  /** What would be drawn next, by the paths so far, some not scored. Undefined: nothing is drawn early. */
  readonly guess?: ((drawn: readonly Drawn[]) => Guess) | undefined;
  /** Of the next round, if there is a guess. */
  readonly next?: Pick<Round, 'iteration' | 'steps' | 'toEnd'>;
}

/** In a round: a guess looks at all of its paths. */
const MOST_GUESSES = 16;

export class Drawing {
  readonly #root: Path;
  readonly #plan: SearchPlan;
  readonly #models: Models;
  readonly #running = new Set<AbortController>();
  /** Paths with steps that may be gone on with, and those before them. */
  #alive = new Set<Path>();
  #ahead = new Map<number, Running>();
  #stopped: { readonly reason: unknown } | undefined;

  constructor(problem: Problem, plan: SearchPlan, models: Models) {
    this.#root = rootOf(problem);
    this.#plan = plan;
    this.#models = models;
  }

  /** Aborts all that is asked for, and what will be. */
  stop(reason: unknown): void {
    this.#stopped ??= { reason };
    for (const controller of this.#running) controller.abort(reason);
    this.#ahead.clear();
  }

  /**
   * In the order of `children`; with `until` as many of them as it asks for. Rejects with what the models reject with,
   * but for PathFailed.
   */
  async round(round: Round, until?: (drawn: readonly Drawn[]) => boolean): Promise<readonly Drawn[]> {
    const early = this.#ahead;
    this.#ahead = new Map();
    const needed = new Set(round.children.map((child) => this.#numberOf(child)));
    for (const [number, running] of early) if (!needed.has(number)) this.#abort(running.controller);
    const begun = round.children.map((child) => early.get(this.#numberOf(child)) ?? this.#begin(child, round, false));
    const known = new Map<number, Drawn>();
    let events = 0;
    const learn = (path: Drawn, isLast: boolean): void => {
      known.set(path.place, path);
      events++;
      if (!isLast && events % Math.ceil((2 * begun.length) / MOST_GUESSES) === 0)
        this.#guess([...known.values()], round);
    };
    let left = begun.length;
    const drawn = begun.map(async (running, index) => {
      const path = await this.#finish(running, round, round.children[index]!, index, (unscored) =>
        learn(unscored, false),
      );
      addLine(path.path, this.#alive);
      learn(path, --left === 0);
      return path;
    });
    if (until === undefined) return Promise.all(drawn);
    // Those behind the last one that is needed have no reader.
    for (const path of drawn) path.catch(() => {});
    const prefix: Drawn[] = [];
    for (const path of drawn) {
      prefix.push(await path);
      if (until(prefix)) break;
    }
    for (const { controller } of begun.slice(prefix.length)) this.#abort(controller);
    return prefix;
  }

  /** The verifier is told which paths these go on from. */
  prepare(children: readonly Child[]): void {
    const paths = new Set(children.map(({ parent }) => parent?.path ?? this.#root));
    for (const path of paths) this.#models.judge?.prepare?.(path);
  }

  /** Nothing more is drawn but from `parents`: the models are told of all other paths that were drawn. */
  keepOnly(parents: Iterable<Drawn>): void {
    const alive = new Set<Path>();
    for (const { path } of parents) addLine(path, alive);
    const { writer, judge } = this.#models;
    for (const path of [...this.#alive].sort((a, b) => b.depth - a.depth)) {
      if (alive.has(path)) continue;
      const siblings = [...alive].filter(({ parent }) => parent === path.parent);
      writer.drop?.(path, siblings);
      judge?.drop?.(path, siblings);
    }
    this.#alive = alive;
  }

  #numberOf({ parent, index }: Child): number {
    return candidateOf(parent?.place ?? 0, index, this.#plan.n);
  }

  #guess(known: readonly Drawn[], { guess, next }: Round): void {
    if (guess === undefined || next === undefined) return;
    const { wanted, isOpen } = guess(known);
    const { n } = this.#plan;
    for (const [number, running] of this.#ahead)
      if (!isOpen(Math.floor(number / n))) {
        this.#ahead.delete(number);
        this.#abort(running.controller);
      }
    for (const child of wanted) {
      const number = this.#numberOf(child);
      if (this.#ahead.size >= n) return;
      if (!this.#ahead.has(number)) this.#ahead.set(number, this.#begin(child, { ...next, children: [] }, true));
    }
  }

  #abort(controller: AbortController): void {
    controller.abort(new Error('the step is not needed'));
    this.#running.delete(controller);
  }

  #begin(child: Child, round: Round, isSpeculative: boolean): Running {
    const controller = new AbortController();
    if (this.#stopped !== undefined) controller.abort(this.#stopped.reason);
    this.#running.add(controller);
    const extension = this.#extend(child, round, isSpeculative, controller.signal);
    // What is thrown away has no reader.
    extension.catch(() => {});
    return { controller, extension };
  }

  /** The first step is asked for before this returns. */
  async #extend(child: Child, round: Round, isSpeculative: boolean, signal: AbortSignal): Promise<Extension> {
    const { plan, writer } = { plan: this.#plan, writer: this.#models.writer };
    const candidate = this.#numberOf(child);
    const ahead: Step[] = [];
    let path = child.parent?.path ?? this.#root;
    let state: PathState = 'open';
    let isStepDrawn = false;
    const write = (iteration: number, isDrawn: boolean): Promise<Step> =>
      writer.write({
        path,
        ahead: [...ahead],
        iteration,
        candidate,
        seed: isDrawn && plan.temperature > 0 ? this.#seed(iteration, candidate) : undefined,
        toEnd: round.toEnd,
        isSpeculative,
        signal,
      });
    try {
      for (let step = 0; step < round.steps && state === 'open'; step++) {
        const written = await write(round.iteration + step, true);
        path = extend(path, written);
        isStepDrawn = true;
        state = stateAfter(written, plan);
      }
      const last = round.iteration + round.steps - 1;
      for (let goesOn = state === 'open'; goesOn && ahead.length < plan.lookahead;) {
        const written = await write(last, false);
        ahead.push(written);
        goesOn = written.end === 'step' || (plan.isSal && written.end === 'other-eos');
      }
      return { path, isStepDrawn, ahead, state };
    } catch (error) {
      if (!(error instanceof PathFailed)) throw error;
      return { path, isStepDrawn, ahead, state: 'failed', error: error.message };
    }
  }

  #seed(iteration: number, candidate: number): number {
    return drawSeed(this.#plan.seed, this.#root.problem.problem, iteration, candidate);
  }

  /** `onDrawn` is told of the path before it is scored: it has the aggregate of its parent then. */
  async #finish(
    { controller, extension }: Running,
    { iteration }: Round,
    { parent, index, subtree }: Child,
    position: number,
    onDrawn: (path: Drawn) => void,
  ): Promise<Drawn> {
    try {
      const extended = await extension;
      const place = parent === undefined ? index : position;
      const drawn = { place, iteration, parent, subtree, ...extended, scores: [], aggregate: parent?.aggregate ?? 0 };
      if (extended.state !== 'failed') onDrawn(drawn);
      const scored =
        extended.state === 'failed' ? drawn : { ...drawn, ...(await this.#score(extended, controller.signal)) };
      return { ...scored, aggregate: aggregateScores(scored.scores, this.#plan.aggregate) };
    } finally {
      this.#running.delete(controller);
    }
  }

  async #score(extended: Extension, signal: AbortSignal): Promise<Extension & Pick<Drawn, 'scores'>> {
    const { judge } = this.#models;
    if (judge === undefined) return { ...extended, scores: [] };
    // search-and-learn's beam search draws steps ahead, and does not look at them.
    const ahead = this.#plan.isSal && this.#plan.method === 'beam' ? [] : extended.ahead;
    try {
      const scores = await judge.score(extended.path, ahead, signal);
      const wrong = scores.findIndex((score) => !Number.isFinite(score));
      if (wrong === -1) return { ...extended, scores };
      throw new PathFailed(`the score of step ${wrong + 1} is ${scores[wrong]}`);
    } catch (error) {
      if (!(error instanceof PathFailed)) throw error;
      return { ...extended, scores: [], state: 'failed', error: error.message };
    }
  }
}

/** Adds a path and those before it that have steps. */
function addLine(path: Path, to: Set<Path>): void {
  for (let at: Path | undefined = path; at?.step !== undefined && !to.has(at); at = at.parent) to.add(at);
}
