/** States that do much the same as others, whose masks are known. */
import type { Automaton } from './automaton.js';
import { NOTHING } from './nodes.js';

/** Expressions are looked into so deep. */
const DEPTH = 8;
/** How many bytes an intersection may need for its end: what is tried. In so many states it is looked for. */
const SLACKS = [4, 32];
const MAX_STATES = 1024;

/** Stand-ins of states, for texts of a few bytes. */
export class Relatives {
  readonly #automaton: Automaton;
  readonly #near = new Map<number, number>();
  readonly #endsSoon = new Map<number, boolean>();

  constructor(automaton: Automaton) {
    this.#automaton = automaton;
  }

  /**
   * A state that goes on and ends with the same texts of at most `bytes` bytes (below 2,048): repetitions that are too
   * many to be counted in so few are not counted. Strings with limits on their lengths share masks by it.
   */
  near(state: number, bytes: number): number {
    if (!this.#automaton.isCounted[state]!) return state;
    const key = state * 2048 + bytes;
    let found = this.#near.get(key);
    if (found === undefined) {
      if (this.#near.size >= 2 ** 16) this.#near.clear();
      this.#near.set(key, (found = this.#relax(state, bytes, DEPTH)));
    }
    return found;
  }

  /** A state with all texts of this one, if it is an intersection or begins with one; its other parts forbid some. */
  wider(state: number): number | undefined {
    const { nodes } = this.#automaton;
    if (this.#automaton.isPlain[state]!) return undefined;
    const node = nodes[state]!;
    if (node.kind === 'both') {
      const parts = node.of.filter((part) => nodes[part]!.kind !== 'not');
      return parts.length === 1 ? parts[0] : undefined;
    }
    if (node.kind !== 'then') return undefined;
    const first = this.wider(node.first);
    return first === undefined ? undefined : this.#automaton.then(first, node.rest);
  }

  #relax(id: number, bytes: number, depth: number): number {
    const automaton = this.#automaton;
    const node = automaton.nodes[id]!;
    if (depth === 0) return id;
    if (node.kind === 'then') {
      return automaton.then(this.#relax(node.first, bytes, depth - 1), this.#relax(node.rest, bytes, depth - 1));
    }
    if (node.kind === 'either' && node.of.length <= DEPTH) {
      return automaton.either(node.of.map((part) => this.#relax(part, bytes, depth - 1)));
    }
    if (node.kind === 'both' && node.of.length <= DEPTH) {
      // What its parts allow may end soon for each of them and not for all: then a limit further off matters too.
      for (const slack of SLACKS) {
        const relaxed = automaton.both(node.of.map((part) => this.#relax(part, bytes + slack, depth - 1)));
        if (relaxed === id || this.#isEndNear(relaxed, bytes, slack)) return relaxed;
      }
      return id;
    }
    if (node.kind !== 'repeat' || (node.min <= bytes && node.max <= bytes)) return id;
    return automaton.repeat(node.of, Math.min(node.min, bytes + 1), node.max > bytes ? Infinity : node.max);
  }

  /** Whether from all states within `bytes` bytes a text ends within `slack` bytes more. */
  #isEndNear(start: number, bytes: number, slack: number): boolean {
    const key = (start * 2048 + bytes) * 64 + slack;
    let found = this.#endsSoon.get(key);
    if (found === undefined) {
      if (this.#endsSoon.size >= 2 ** 16) this.#endsSoon.clear();
      this.#endsSoon.set(key, (found = this.#findEnds(start, bytes, slack)));
    }
    return found;
  }

  #findEnds(start: number, bytes: number, slack: number): boolean {
    const automaton = this.#automaton;
    const levels = new Map([[start, 0]]);
    const before = new Map<number, number[]>();
    for (const [state, level] of levels) {
      if (levels.size > MAX_STATES) return false;
      if (level >= bytes + slack) continue;
      for (const next of automaton.nexts(state)) {
        if (next === NOTHING) continue;
        if (!levels.has(next)) levels.set(next, level + 1);
        const list = before.get(next);
        if (list === undefined) before.set(next, [state]);
        else list.push(state);
      }
    }
    const distances = new Map(
      [...levels.keys()].filter((state) => automaton.isNullable[state]).map((each) => [each, 0]),
    );
    for (const [state, distance] of distances) {
      for (const each of before.get(state) ?? []) if (!distances.has(each)) distances.set(each, distance + 1);
    }
    return [...levels].every(([state, level]) => level > bytes || (distances.get(state) ?? Infinity) <= slack);
  }
}
