/**
 * What a command waited for before its first answer. Nearly everything overlaps, so a sum of phases says nothing: from
 * the answer back, each step is what the one after it waited for. What is not on that path had time to spare.
 */
import type { PhaseSpan } from './phases.js';

/** The name of a phase, or several of which any may be there. */
type Waited = string | readonly string[];

/** What is known of a phase. Names are those of the same process; where that has none, of the command. */
interface KnownPhase {
  readonly about: string;
  /** It cannot end before these have, though it may begin earlier. */
  readonly needs: readonly Waited[];
  /** It waited for these if they had ended when it began: a run may also do them side by side. */
  readonly after: readonly Waited[];
}

/** Until the model's files have been read, a command does one thing after another. */
const FILES = ['process', 'questions', 'open'] as const;
const TEXTS = ['prompts', 'tokenize', 'tokenize prompts'] as const;
/** A plan from the cache, or one that is made. */
const PLAN = ['plan', 'compile'] as const;

/** The phases of a start by name, in their usual order. Others may be recorded: they wait for what ended before. */
export const PHASES = {
  process: {
    about: 'Node starts and loads the program. The command and each device process have one.',
    needs: [],
    after: [],
  },
  child: { about: 'The command starts a device process.', needs: ['process'], after: [] },
  questions: { about: 'Questions, or prompts in a file, are read.', needs: ['process'], after: [] },
  tasks: { about: 'Task files are found and read.', needs: ['process'], after: [] },
  open: {
    about: "The model's files are opened and checked. A device process also takes the plan that it is sent.",
    needs: ['process', 'questions', 'tasks'],
    after: [PLAN],
  },
  data: { about: 'Data sets of tasks are opened.', needs: ['process', 'open'], after: [] },
  prompts: {
    about: 'Documents of tasks are read, and their prompts are written.',
    needs: ['process', 'open', 'data'],
    after: [],
  },
  tokenize: { about: 'Texts become tokens.', needs: [...FILES, 'prompts'], after: [] },
  'tokenize prompts': {
    about: 'Prompts whose continuation tasks ask for become tokens.',
    needs: [...FILES, 'prompts'],
    after: [],
  },
  plan: { about: 'The plan is read from the cache, or made.', needs: FILES, after: TEXTS },
  compile: {
    about: 'The model becomes a plan: graph, fused kernels, memory.',
    needs: [...FILES, 'plan'],
    after: TEXTS,
  },
  pack: { about: 'Tokens become micro-batches.', needs: ['tokenize'], after: [PLAN] },
  context: { about: 'The driver makes a context on each device.', needs: ['process'], after: ['child'] },
  kernels: {
    about: 'Kernels are found in the cache, or compiled.',
    needs: ['process', 'open', PLAN],
    after: ['context'],
  },
  weights: {
    about: 'Weights are read, copied to the devices and laid out.',
    needs: ['process', 'open', 'context', PLAN],
    after: ['kernels'],
  },
  programs: {
    about: 'Kernels are loaded, and bound to weights and buffers.',
    needs: ['context', 'kernels', 'weights'],
    after: [],
  },
  'first micro-batch': {
    about: 'The first micro-batch is computed: `run` and tasks.',
    needs: ['programs', 'pack'],
    after: TEXTS,
  },
  'first token': {
    about: 'Prompts are computed up to the first token: `generate`.',
    needs: ['programs', ...TEXTS],
    after: [],
  },
  'first text': {
    about: 'A search with beams ends: no token is certain before.',
    needs: ['programs', ...TEXTS],
    after: [],
  },
  'first score': {
    about: 'A solution is scored: `reward`.',
    needs: ['programs', ...TEXTS],
    after: [],
  },
  'tokenize ahead': { about: 'Later documents become tokens. No first answer waits for it.', needs: [], after: [] },
  'tokenize prompts ahead': {
    about: 'The same of prompts that are to be continued.',
    needs: [],
    after: [],
  },
} as const satisfies Readonly<Record<string, KnownPhase>>;

export type PhaseName = keyof typeof PHASES;

const KNOWN: ReadonlyMap<string, KnownPhase> = new Map(Object.entries(PHASES));
/** Those that end with the first answer. */
const FIRST: readonly PhaseName[] = ['first micro-batch', 'first token', 'first text', 'first score'];
export const ANSWERS: readonly string[] = FIRST;
const LAST: readonly PhaseName[] = ['kernels', 'weights', 'programs'];
/** A device process that has done these can compute. */
const LOADING: readonly string[] = LAST;

/** A stretch of the critical path. Times are those of the spans. */
export interface PathStep {
  /** What was waited for; undefined where nothing that was recorded explains the time. */
  readonly span: PhaseSpan | undefined;
  readonly begin: number;
  readonly end: number;
}

/** One phase for several of a name and a process that overlap: work that was waited for is often recorded twice. */
function joined(spans: readonly PhaseSpan[]): PhaseSpan[] {
  const found: PhaseSpan[] = [];
  const last = new Map<string, number>();
  for (const span of spans.toSorted((a, b) => a.begin - b.begin)) {
    const key = JSON.stringify([span.name, span.replica]);
    const at = last.get(key);
    const before = at === undefined ? undefined : found[at];
    if (before !== undefined && span.begin <= before.end)
      found[at!] = { ...before, end: Math.max(before.end, span.end) };
    else last.set(key, found.push(span) - 1);
  }
  return found;
}

/** The phases of a start, and which of them waited for which. */
export class StartGraph {
  /** In order of their end: a phase waits only for those before it, so nothing waits for itself. */
  readonly #spans: readonly PhaseSpan[];
  readonly #rank: ReadonlyMap<PhaseSpan, number>;
  readonly #waits = new Map<PhaseSpan, readonly PhaseSpan[]>();
  readonly answer: PhaseSpan | undefined;
  /** Calls go to whichever replica is there: the first answer waited for the one that was ready first. */
  readonly #replica: number | undefined;

  constructor(recorded: readonly PhaseSpan[]) {
    this.#spans = joined(
      recorded.filter(
        ({ begin, end, isPart }) => isPart !== true && Number.isFinite(begin) && end >= begin && end < Infinity,
      ),
    ).sort((a, b) => a.end - b.end || a.begin - b.begin);
    this.#rank = new Map(this.#spans.map((span, rank) => [span, rank]));
    const own = this.#spans.filter(({ replica }) => replica === undefined);
    this.answer = own.findLast(({ name }) => ANSWERS.includes(name)) ?? own.at(-1) ?? this.#spans.at(-1);
    this.#replica = this.#firstReady();
  }

  /** In order of their begin; those that were recorded twice are there once. */
  get phases(): readonly PhaseSpan[] {
    return this.#spans.toSorted((a, b) => a.begin - b.begin);
  }

  #firstReady(): number | undefined {
    const ready = new Map<number, number>();
    const before = this.#spans.filter((span) => span.replica !== undefined && this.#isBefore(span));
    const loaded = before.filter(({ name }) => LOADING.includes(name));
    for (const { replica, end } of loaded.length > 0 ? loaded : before) ready.set(replica!, end);
    return [...ready].sort(([a, endA], [b, endB]) => endA - endB || a - b)[0]?.[0];
  }

  #isBefore(span: PhaseSpan, other = this.answer): boolean {
    return other !== undefined && this.#rank.get(span)! < this.#rank.get(other)!;
  }

  /** What a phase waited for. All of it ended no later than the phase itself. */
  waitsOf(span: PhaseSpan): readonly PhaseSpan[] {
    let found = this.#waits.get(span);
    if (found === undefined) this.#waits.set(span, (found = this.#findWaits(span)));
    return found;
  }

  #findWaits(span: PhaseSpan): readonly PhaseSpan[] {
    const known = KNOWN.get(span.name);
    const found = new Set<PhaseSpan>();
    const seen = new Set<string>();
    const add = (waited: Waited, isLoose: boolean): void => {
      const names = [waited].flat().filter((name) => !seen.has(`${name} ${isLoose}`));
      for (const name of names) seen.add(`${name} ${isLoose}`);
      const last = names.flatMap((name) => this.#lastOf(name, span, isLoose) ?? []);
      for (const each of last) found.add(each);
      if (last.length > 0) return;
      // What is absent drops out: what it would have waited for is waited for in its place.
      for (const name of names) {
        const absent = KNOWN.get(name);
        for (const each of absent?.needs ?? []) add(each, isLoose);
        for (const each of absent?.after ?? []) add(each, true);
      }
    };
    for (const name of span.after ?? known?.needs ?? []) add(name, false);
    if (span.after === undefined) for (const name of known?.after ?? []) add(name, true);
    // It may have waited for a phase that nothing is known about, or for one of its own name: they explain gaps best.
    const before = this.#spans.filter(
      (each) =>
        each.replica === span.replica &&
        each.end <= span.begin &&
        this.#isBefore(each, span) &&
        (found.size === 0 || !KNOWN.has(each.name) || each.name === span.name),
    );
    const last = before.at(-1);
    if (last !== undefined) found.add(last);
    return [...found];
  }

  /** The last of this name that `span` can have waited for, in its own process before any other. */
  #lastOf(name: string, span: PhaseSpan, isLoose: boolean): PhaseSpan | undefined {
    const lastIn = (replica: number | undefined): PhaseSpan | undefined =>
      this.#spans.findLast(
        (each) =>
          each.name === name &&
          each.replica === replica &&
          this.#isBefore(each, span) &&
          (!isLoose || each.end <= span.begin),
      );
    return lastIn(span.replica) ?? lastIn(span.replica === undefined ? this.#replica : undefined);
  }

  /** What the command was doing when it started the process of a replica: the latest phase that had begun. */
  #starterOf({ replica, begin }: PhaseSpan): PhaseSpan | undefined {
    if (replica === undefined) return undefined;
    return this.#spans
      .filter((each) => each.replica === undefined && each.begin < begin)
      .sort((a, b) => Math.min(a.end, begin) - Math.min(b.end, begin) || a.begin - b.begin)
      .at(-1);
  }

  /**
   * By how many milliseconds a phase could have ended later with the answer at the same time. Phases that nothing
   * waited for have no entry.
   */
  spares(): ReadonlyMap<PhaseSpan, number> {
    const latest = new Map<PhaseSpan, number>();
    if (this.answer !== undefined) latest.set(this.answer, this.answer.end);
    for (const span of this.#spans.toReversed()) {
      const end = latest.get(span);
      if (end === undefined) continue;
      const waits = this.waitsOf(span);
      const from = waits.reduce((last, each) => Math.max(last, each.end), span.begin);
      for (const each of waits) latest.set(each, Math.min(latest.get(each) ?? Infinity, end - (span.end - from)));
    }
    return new Map([...latest].map(([span, end]) => [span, Math.max(0, end - span.end)]));
  }

  /** What `span` waited for last, until when; what was visited before does not count. */
  #lastWait(
    span: PhaseSpan,
    cursor: number,
    visited: ReadonlySet<PhaseSpan>,
  ): readonly [PhaseSpan, number] | undefined {
    const waits = this.waitsOf(span);
    const last = waits
      .filter((each) => each.end <= cursor && !visited.has(each))
      .sort((a, b) => this.#rank.get(a)! - this.#rank.get(b)!)
      .at(-1);
    if (last !== undefined) return [last, last.end];
    const starter = waits.length === 0 ? this.#starterOf(span) : undefined;
    if (starter === undefined || visited.has(starter)) return undefined;
    return [starter, Math.min(starter.end, span.begin, cursor)];
  }

  /** From `origin` to the answer: each step begins where the one before it ends. */
  path(origin: number): readonly PathStep[] {
    const steps: PathStep[] = [];
    if (this.answer === undefined) return steps;
    let [span, cursor] = [this.answer, this.answer.end];
    const add = (of: PhaseSpan | undefined, until: number): void => {
      const begin = Math.max(origin, until);
      if (cursor > begin) steps.push({ span: of, begin, end: cursor });
      cursor = Math.min(cursor, begin);
    };
    const visited = new Set([span]);
    /** Phases that had begun before what they waited for: what nothing else explains is their own time. */
    const around: PhaseSpan[] = [];
    while (cursor > origin) {
      const wait = this.#lastWait(span, cursor, visited);
      const [next, until] = wait ?? [undefined, -Infinity];
      add(span, Math.max(span.begin, until));
      let outer: PhaseSpan | undefined;
      if (until >= span.begin) around.push(span);
      else {
        while ((outer = around.pop()) !== undefined) if (outer.replica === span.replica && outer.begin < cursor) break;
        if (outer !== undefined) {
          add(outer, Math.max(outer.begin, until));
          if (until >= outer.begin) around.push(outer);
        }
      }
      if (outer !== undefined && until < outer.begin) span = outer;
      else if (next === undefined) break;
      else {
        add(undefined, until);
        visited.add(next);
        span = next;
      }
    }
    add(undefined, origin);
    return steps.reverse();
  }
}

/**
 * The steps that led to the first answer, from the command on: they follow one another without gaps, so that their
 * times add up to the whole. `origin`: when the command began; by default when its first phase did.
 */
export function criticalPath(spans: readonly PhaseSpan[], origin = originOf(spans)): readonly PathStep[] {
  return new StartGraph(spans).path(origin);
}

function originOf(spans: readonly PhaseSpan[]): number {
  const own = spans.filter(({ replica }) => replica === undefined);
  return (own.length === 0 ? spans : own).reduce((first, { begin }) => (begin < first ? begin : first), Infinity);
}
