/** Grammars of schemas, followed byte by byte: whether a text is in one, and texts drawn from one. */
import { Follower, instanceOf } from '../../bench/followInstances.js';
import { type Grammar, GrammarError } from '../../grammar/grammar.js';
import { LIMITS } from '../../grammar/limits.js';
import { Matcher, type State } from '../../grammar/matcher/states.js';
import { Automaton } from '../../grammar/regular/automaton.js';
import { schemaGrammar } from '../../grammar/schema/schemaGrammar.js';
import { Work } from '../../grammar/work.js';

export class FollowedGrammar {
  readonly #work = new Work();
  readonly #matcher: Matcher;
  readonly #follower: Follower;

  constructor(grammar: Grammar) {
    this.#work.begin(LIMITS.compileSteps);
    this.#matcher = new Matcher(grammar, new Automaton(this.#work), 0);
    this.#follower = new Follower(this.#matcher, this.#work);
  }

  #next(state: State, byte: number): State | undefined {
    this.#work.begin(LIMITS.compileSteps);
    return this.#matcher.next(state, byte);
  }

  #isEnd(state: State): boolean {
    this.#work.begin(LIMITS.compileSteps);
    return this.#matcher.reach(state).isEnd;
  }

  has(text: string): boolean {
    return this.#follower.hasAsSpelled({ kind: 'scalar', text });
  }

  /** Whether it has the value with its properties in any order. */
  hasValue(value: unknown): boolean {
    return this.#follower.hasInAnyOrder(instanceOf(JSON.stringify(value)));
  }

  /** A text at random. Behind `length` bytes it ends as soon as it can; undefined where that takes too long. */
  draw(random: () => number, length = 60): string | undefined {
    let state = this.#matcher.start;
    const bytes: number[] = [];
    while (bytes.length < length * 20) {
      const isLong = bytes.length > length;
      if (this.#isEnd(state) && (isLong || random() < 0.3)) return Buffer.from(bytes).toString();
      const options: { byte: number; next: State }[] = [];
      for (let byte = 0; byte < 256; byte++) {
        const next = this.#next(state, byte);
        if (next !== undefined) options.push({ byte, next });
      }
      if (options.length === 0) return this.#isEnd(state) ? Buffer.from(bytes).toString() : fail(bytes);
      const closing = options.filter(({ byte }) => CLOSING.has(byte));
      const from = closing.length > 0 && (isLong || random() < 0.15) ? closing : options;
      const option = from[Math.floor(random() * from.length)]!;
      bytes.push(option.byte);
      state = option.next;
    }
    return undefined;
  }
}

const CLOSING = new Set(Buffer.from('"]}'));

const fail = (bytes: readonly number[]): never => {
  throw new Error(`nothing may follow ${Buffer.from(bytes).toString()}`);
};

/** The grammar of a schema; where it is refused, why and where. */
export function followedOrRefused(schema: unknown): FollowedGrammar | string {
  try {
    return new FollowedGrammar(schemaGrammar(schema));
  } catch (error) {
    if (error instanceof GrammarError) return `${error.message} at "${error.where ?? ''}"`;
    throw error;
  }
}

export function followed(schema: unknown): FollowedGrammar {
  const found = followedOrRefused(schema);
  if (typeof found === 'string') throw new Error(found);
  return found;
}
