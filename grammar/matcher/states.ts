/**
 * What a text may be so far: Earley's sets (1970) over lexemes, interned. A thread is a lexeme on its way and the frame
 * behind it; a frame is what comes then of a rule, and the state at which that rule began. Equal sets of threads are
 * one state, so that a loop comes back to the state that it left, with its mask.
 */
import type { Grammar } from '../grammar.js';
import { LIMITS } from '../limits.js';
import type { Automaton } from '../regular/automaton.js';
import { NOTHING } from '../regular/nodes.js';
import { Rests } from './rests.js';

/** Rule `rule`, which began at state `origin`, goes on with `rest`. */
export interface Frame {
  readonly id: number;
  /** -1 for the grammar itself. */
  readonly rule: number;
  readonly origin: State;
  readonly rest: number;
  /** The state in which only this frame goes on. */
  boundary: State | undefined;
}

export interface Thread {
  readonly frame: Frame;
  /** State of the automaton, inside of a lexeme. */
  readonly state: number;
}

export interface State {
  readonly id: number;
  /** Lexemes on their way when it was made, and frames at their places then. */
  readonly kernel: readonly Thread[];
  readonly places: readonly Frame[];
  /** Frames that have begun here, by rule and rest. */
  readonly frames: Map<number, Frame>;
  readonly nexts: Map<number, State | undefined>;
  reach: Reach | undefined;
}

/** What may come at a state. */
export interface Reach {
  /** Lexemes on their way, and those that may begin. */
  readonly threads: readonly Thread[];
  /** Special tokens and the frames behind them. */
  readonly tokens: ReadonlyMap<number, ReadonlySet<Frame>>;
  /** Who waits for the rules that begin here. */
  readonly waiting: ReadonlyMap<number, ReadonlySet<Frame>>;
  /** The text may end. */
  readonly isEnd: boolean;
}

const GRAMMAR = -1;

export class Matcher {
  readonly automaton: Automaton;
  readonly start: State;
  readonly #rests: Rests;
  readonly #states = new Map<string, State>();
  #ids = 0;
  /** Threads of all states that were ever made. */
  threadsMade = 0;
  /** Threads of those that are remembered. */
  #threads = 0;

  /** Throws GrammarError where no text can be written, or bounds are exceeded. */
  constructor(grammar: Grammar, automaton: Automaton, vocabSize: number) {
    this.automaton = automaton;
    this.#rests = new Rests(grammar, automaton, vocabSize);
    const root = this.#make([], []);
    this.start = this.#intern([], [this.#frame(GRAMMAR, root, this.#rests.start)]);
  }

  /** The state behind a byte; undefined where no text goes on so. */
  next(state: State, byte: number): State | undefined {
    const known = state.nexts.get(byte);
    if (known !== undefined || state.nexts.has(byte)) return known;
    const kernel: Thread[] = [];
    for (const { frame, state: from } of this.reach(state).threads) {
      const to = this.automaton.next(from, byte);
      if (to !== NOTHING) kernel.push({ frame, state: to });
    }
    const found = kernel.length === 0 ? undefined : this.#intern(kernel, []);
    state.nexts.set(byte, found);
    return found;
  }

  /** The state behind a special token. */
  nextOfToken(state: State, token: number): State | undefined {
    const places = this.reach(state).tokens.get(token);
    return places === undefined ? undefined : this.#intern([], [...places]);
  }

  /** The state in which a frame goes on, and nothing else. */
  boundary(frame: Frame): State {
    return (frame.boundary ??= this.#intern([], [frame]));
  }

  reach(state: State): Reach {
    return (state.reach ??= this.#reachOf(state));
  }

  #reachOf(state: State): Reach {
    const { automaton } = this;
    const threads = new Map<number, Thread>();
    const tokens = new Map<number, Set<Frame>>();
    const waiting = new Map<number, Set<Frame>>();
    let isEnd = false;
    const places = new Set(state.places);
    for (const thread of state.kernel) {
      threads.set(keyOf(thread), thread);
      if (automaton.isNullable[thread.state]!) places.add(thread.frame);
    }
    // A rule that can be empty never ends where it began: rests that may be skipped are skipped by `steps`.
    for (const { rule, origin, rest } of places) {
      automaton.work.spend(16);
      if (this.#rests.isNullable[rest]! && origin !== state) {
        if (rule === GRAMMAR) isEnd = true;
        else for (const frame of origin.reach!.waiting.get(rule)!) places.add(frame);
      }
      for (const { atom, rest: behind } of this.#rests.steps(rest)) {
        automaton.work.spend(16);
        if (atom.kind === 'rule') {
          const body = this.#rests.rules[atom.rule]!;
          // The end of the last part of a rule is the end of the rule, so nobody waits for it (Leo 1991).
          if (this.#rests.isDone(behind)) places.add(this.#frame(rule, origin, body));
          else {
            if (!waiting.has(atom.rule)) places.add(this.#frame(atom.rule, state, body));
            add(waiting, atom.rule, this.#frame(rule, origin, behind));
          }
          continue;
        }
        const frame = this.#frame(rule, origin, behind);
        if (atom.kind === 'token') add(tokens, atom.id, frame);
        else {
          const thread = { frame, state: atom.state };
          threads.set(keyOf(thread), thread);
        }
      }
    }
    return { threads: [...threads.values()], tokens, waiting, isEnd };
  }

  #frame(rule: number, origin: State, rest: number): Frame {
    const key = (rule + 1) * 2 ** 26 + rest;
    let frame = origin.frames.get(key);
    if (frame === undefined) {
      this.automaton.work.add(1);
      frame = { id: this.#ids++, rule, origin, rest, boundary: undefined };
      origin.frames.set(key, frame);
    }
    return frame;
  }

  #intern(kernel: Thread[], places: readonly Frame[]): State {
    const threads = kernel.length < 2 ? kernel : [...new Map(kernel.map((each) => [keyOf(each), each])).values()];
    threads.sort((one, other) => one.frame.id - other.frame.id || one.state - other.state);
    let key = '';
    for (const { frame, state } of threads) key += `${frame.id}.${state},`;
    for (const id of new Set(places.map((place) => place.id).sort((one, other) => one - other))) key += `;${id}`;
    const known = this.#states.get(key);
    if (known !== undefined) return known;
    if (this.#states.size >= LIMITS.states || this.#threads >= LIMITS.threads) this.#forget();
    const made = this.#make(threads, places);
    this.#states.set(key, made);
    return made;
  }

  /** States stay what they are for whoever has one, but nothing leads to them, and those that come again are new. */
  #forget(): void {
    for (const state of this.#states.values()) {
      for (const frame of state.frames.values()) frame.boundary = undefined;
      state.frames.clear();
      state.nexts.clear();
    }
    this.#states.clear();
    this.#threads = 0;
  }

  #make(kernel: readonly Thread[], places: readonly Frame[]): State {
    this.automaton.work.add(1 + kernel.length);
    this.#threads += 1 + kernel.length;
    this.threadsMade += 1 + kernel.length;
    return { id: this.#ids++, kernel, places, frames: new Map(), nexts: new Map(), reach: undefined };
  }
}

const keyOf = ({ frame, state }: Thread): number => frame.id * 2 ** 26 + state;

const add = <K, V>(map: Map<K, Set<V>>, key: K, value: V): void => {
  const values = map.get(key);
  if (values === undefined) map.set(key, new Set([value]));
  else values.add(value);
};
