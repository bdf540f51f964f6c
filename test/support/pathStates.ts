/**
 * Rows of recurrent states of a made-up model: each has a digest of the path that it has seen, and its length. Answers
 * go through them; a row that is stale, of another path, or that another part of the step writes is an error.
 */
import type { StateRows, StepMessage } from '../../engine/device.js';
import { mix } from './pathDigest.js';

interface State {
  readonly digest: number;
  readonly length: number;
}

export interface PathStateTotals {
  /** Tokens of steps with states, rows that were written, and parts that went on from another row than they wrote. */
  tokens: number;
  writes: number;
  forks: number;
  /** What no model should be asked. */
  readonly errors: string[];
}

export class PathStates {
  readonly totals: PathStateTotals = { tokens: 0, writes: 0, forks: 0, errors: [] };
  private readonly count: number;
  private rows: (State | undefined)[] = [];

  constructor(count: number) {
    this.count = count;
  }

  clear(): void {
    this.rows = [];
  }

  /** The digest behind each token of a message. `begin`: that of a part before its first token. */
  step(message: StepMessage, begin: (part: number) => number, tokenAt: (t: number) => number): readonly number[] {
    const states = message.states ?? this.refuse('a step without rows of states');
    this.check(message, states);
    const digests: number[] = [];
    const lengths: number[] = [];
    const walk = (before: State, t: number, count: number): void => {
      let { digest, length } = before;
      for (let i = t; i < t + count; i++) {
        digests[i] = digest = mix(digest, tokenAt(i));
        lengths[i] = ++length;
      }
    };
    const starts: number[] = [];
    let t = 0;
    message.from.forEach((first, part) => {
      const row = states.from[part]!;
      const before = row < 0 ? { digest: begin(part), length: 0 } : this.rows[row];
      if (before === undefined) return this.refuse(`part ${part} goes on from row ${row}, which nobody has written`);
      if (before.length !== first)
        this.refuse(`part ${part} goes on at ${first} from row ${row}, which has seen ${before.length} tokens`);
      starts.push(t);
      walk(before, t, message.count[part]!);
      t += message.count[part]!;
    });
    const { of, from, count } = message.branches ?? { of: [], from: [], count: [] };
    of.forEach((run, b) => {
      // The token that the branch leaves: of a part, or of a branch before it.
      const first = run < starts.length - b ? message.from[run]! : from[run - message.from.length]!;
      const at = starts[run]! + from[b]! - 1 - first;
      starts.push(t);
      walk({ digest: digests[at]!, length: lengths[at]! }, t, count[b]!);
      t += count[b]!;
    });
    states.token.forEach((token, i) => {
      this.rows[states.to[i]!] = { digest: digests[token]!, length: lengths[token]! };
    });
    this.totals.tokens += t;
    this.totals.writes += states.to.length;
    return digests;
  }

  private check(message: StepMessage, { from, token, to }: StateRows): void {
    const { count } = message;
    if (from.length !== count.length) this.refuse(`${from.length} rows for ${count.length} parts`);
    if (token.length !== to.length) this.refuse(`${token.length} tokens for ${to.length} rows`);
    for (const row of [...from, ...to]) if (!(row >= -1 && row < this.count)) this.refuse(`row ${row}`);
    if (to.includes(-1)) this.refuse('row −1 is written');
    if (new Set(to).size !== to.length) this.refuse('a row is written twice');
    const times = new Map<number, number>();
    token.forEach((t, i) => {
      if (!(t >= (token[i - 1] ?? 0) && t < message.tokens.length)) this.refuse(`token ${t} is out of order`);
      times.set(t, (times.get(t) ?? 0) + 1);
      if (times.get(t)! > 2) this.refuse(`the states behind token ${t} go to three rows`);
    });
    let end = 0;
    from.forEach((row, part) => {
      end += count[part]!;
      if (row < 0 !== (message.from[part] === 0)) this.refuse(`part ${part} at ${message.from[part]} from row ${row}`);
      const writer = row < 0 ? -1 : to.indexOf(row);
      if (writer >= 0 && token[writer] !== end - 1) this.refuse(`row ${row} is read by part ${part}, and written`);
      if (writer >= 0 && message.branches?.of.some((run) => run === part) === true)
        this.refuse(`row ${row} is written, and branches leave part ${part}`);
      if (row >= 0 && writer < 0) this.totals.forks++;
    });
    for (const row of from)
      if (row >= 0 && to.includes(row) && from.filter((each) => each === row).length > 1)
        this.refuse(`row ${row} is written, and two parts go on from it`);
  }

  private refuse(what: string): never {
    this.totals.errors.push(what);
    throw new Error(`states: ${what}`);
  }
}
