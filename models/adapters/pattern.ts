/**
 * Python's regular expressions over the paths of modules. Patterns are those of a stranger's file, so they are matched
 * by sets of positions, without backtracking, and every step counts against a budget: no pattern can hang a command.
 */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';

type Test = (code: number) => boolean;

type Node =
  | { readonly kind: 'one'; readonly test: Test }
  | { readonly kind: 'sequence' | 'either'; readonly of: readonly Node[] }
  | { readonly kind: 'repeat'; readonly of: Node; readonly least: number; readonly most: number }
  | { readonly kind: 'look'; readonly of: Node; readonly isAhead: boolean; readonly isWanted: boolean }
  | { readonly kind: 'edge'; readonly is: 'begin' | 'end' | 'word' | 'inside' };

/** Steps that all patterns of a file may take together: a second or so. Real files take a few hundred thousand. */
const MAX_STEPS = 1 << 27;
const MAX_PATTERN = 1 << 16;
const MAX_DEPTH = 64;
const MAX_REPEAT = 1000;
const HINT = 'list the modules by their names in target_modules, and ranks by plain names';

const isDigit: Test = (code) => code >= 48 && code <= 57;
const isSpace: Test = (code) => code === 32 || (code >= 9 && code <= 13);
const isWord: Test = (code) =>
  isDigit(code) || code === 95 || (code >= 65 && code <= 90) || (code >= 97 && code <= 122) || code > 127;
const LINE = 10;

const CLASSES: Readonly<Record<string, Test>> = {
  d: isDigit,
  D: (code) => !isDigit(code),
  s: isSpace,
  S: (code) => !isSpace(code),
  w: isWord,
  W: (code) => !isWord(code),
};
const CONTROLS: Readonly<Record<string, number>> = { n: 10, r: 13, t: 9, f: 12, v: 11, a: 7 };

/** Steps that are left to the patterns of a file. */
export class PatternBudget {
  private left = MAX_STEPS;
  private readonly where: string;

  /** `where`: the path of the file, which starts messages. */
  constructor(where: string) {
    this.where = where;
  }

  fail(problem: string): never {
    throw new UserError(`${this.where}: ${problem}`, HINT);
  }

  take(steps: number, pattern: string): void {
    this.left -= steps;
    if (this.left < 0) this.fail(`pattern ${quote(pattern, 120)}: matching takes too long`);
  }
}

/** Reads a pattern. What changes the language and is not read is refused by name. */
class Parser {
  private readonly text: string;
  private readonly budget: PatternBudget;
  private at = 0;
  private depth = 0;

  constructor(text: string, budget: PatternBudget) {
    this.text = text;
    this.budget = budget;
  }

  private fail(problem: string): never {
    return this.budget.fail(`pattern ${quote(this.text, 120)}: ${problem}`);
  }

  private takes(text: string): boolean {
    if (!this.text.startsWith(text, this.at)) return false;
    this.at += text.length;
    return true;
  }

  whole(): Node {
    const node = this.either();
    if (this.at < this.text.length) this.fail('a bracket is closed that was not opened');
    return node;
  }

  private either(): Node {
    if (++this.depth > MAX_DEPTH) this.fail('brackets nest too deep');
    const ways = [this.sequence()];
    while (this.takes('|')) ways.push(this.sequence());
    this.depth--;
    return ways.length === 1 ? ways[0]! : { kind: 'either', of: ways };
  }

  private sequence(): Node {
    const of: Node[] = [];
    while (this.at < this.text.length && !'|)'.includes(this.text.charAt(this.at))) of.push(this.repeated());
    return { kind: 'sequence', of };
  }

  private repeated(): Node {
    const start = this.at;
    const node = this.atom();
    const bounds = this.bounds();
    if (bounds === undefined) return node;
    if (node.kind === 'edge' || node.kind === 'look') this.fail('nothing to repeat');
    // A lazy repeat matches the same texts.
    if (!this.takes('?') && this.takes('+')) this.fail('possessive repeats are not read');
    if (this.bounds() !== undefined) this.fail(`repeats a repeat at character ${start}`);
    return { kind: 'repeat', of: node, ...bounds };
  }

  private bounds(): { readonly least: number; readonly most: number } | undefined {
    if (this.takes('*')) return { least: 0, most: Infinity };
    if (this.takes('+')) return { least: 1, most: Infinity };
    if (this.takes('?')) return { least: 0, most: 1 };
    const [all, least = '', comma, most = ''] =
      /^\{(\d{0,9})(,?)(\d{0,9})\}/.exec(this.text.slice(this.at, this.at + 24)) ?? [];
    if (all === undefined || (least === '' && comma === '')) return undefined;
    this.at += all.length;
    const bounds = { least: Number(least), most: comma === '' ? Number(least) : most === '' ? Infinity : Number(most) };
    if (bounds.least > MAX_REPEAT || (bounds.most !== Infinity && bounds.most > MAX_REPEAT))
      this.fail(`repeats more than ${MAX_REPEAT} times`);
    if (bounds.most < bounds.least) this.fail('the least number of repeats is above the most');
    return bounds;
  }

  private atom(): Node {
    if (this.takes('(')) return this.group();
    if (this.takes('[')) return { kind: 'one', test: this.set() };
    if (this.takes('.')) return { kind: 'one', test: (code) => code !== LINE };
    if (this.takes('^')) return { kind: 'edge', is: 'begin' };
    if (this.takes('$')) return { kind: 'edge', is: 'end' };
    if (this.takes('\\')) return this.escape();
    if ('*+?'.includes(this.text.charAt(this.at))) this.fail('nothing to repeat');
    return this.literal(this.text.charCodeAt(this.at++));
  }

  private literal(code: number): Node {
    return { kind: 'one', test: (other) => other === code };
  }

  private group(): Node {
    const look = ['?=', '?!', '?<=', '?<!'].find((mark) => this.takes(mark));
    if (look === undefined && this.takes('?')) {
      const name = /^P<[A-Za-z_]\w{0,99}>/.exec(this.text.slice(this.at, this.at + 104))?.[0] ?? ':';
      if (!this.takes(name)) this.fail(`(?${this.text.charAt(this.at)}…) is not read`);
    }
    const node = this.either();
    if (!this.takes(')')) this.fail('a bracket is not closed');
    return look === undefined
      ? node
      : { kind: 'look', of: node, isAhead: !look.includes('<'), isWanted: look.endsWith('=') };
  }

  private escape(): Node {
    const character = this.text.charAt(this.at++);
    switch (character) {
      case 'A':
        return { kind: 'edge', is: 'begin' };
      case 'Z':
        return { kind: 'edge', is: 'end' };
      case 'b':
        return { kind: 'edge', is: 'word' };
      case 'B':
        return { kind: 'edge', is: 'inside' };
      default:
        return { kind: 'one', test: this.escaped(character) };
    }
  }

  /** What stands behind a backslash, where it is a character or a class of them. */
  private escaped(character: string): Test {
    const set = CLASSES[character];
    if (set !== undefined) return set;
    const code = CONTROLS[character] ?? character.charCodeAt(0);
    if (CONTROLS[character] === undefined && (character === '' || /[A-Za-z0-9]/.test(character)))
      this.fail(character === '' ? 'ends in a backslash' : `\\${character} is not read`);
    return (other) => other === code;
  }

  /** The inside of […]. */
  private set(): Test {
    const isOther = this.takes('^');
    const tests: Test[] = [];
    for (let isFirst = true; isFirst || this.text.charAt(this.at) !== ']'; isFirst = false) {
      if (this.at >= this.text.length) this.fail('a set is not closed');
      const from = this.member();
      if (typeof from === 'number' && /^-[^\]]/.test(this.text.slice(this.at, this.at + 2))) {
        this.at++;
        const to = this.member();
        if (typeof to !== 'number' || to < from) this.fail('a range in a set is none');
        tests.push((code) => code >= from && code <= Number(to));
      } else tests.push(typeof from === 'number' ? (code) => code === from : from);
    }
    this.at++;
    return (code) => tests.some((test) => test(code)) !== isOther;
  }

  private member(): number | Test {
    if (!this.takes('\\')) return this.text.charCodeAt(this.at++);
    const character = this.text.charAt(this.at++);
    if (CLASSES[character] !== undefined) return CLASSES[character];
    if (CONTROLS[character] !== undefined) return CONTROLS[character];
    if (character === '' || /[A-Za-z0-9]/.test(character)) this.fail(`\\${character} in a set is not read`);
    return character.charCodeAt(0);
  }
}

/** A pattern of a file. */
export class Pattern {
  readonly source: string;
  private readonly root: Node;
  private readonly budget: PatternBudget;

  /** Throws UserError for a pattern that Python would refuse, or that is not read. */
  constructor(source: string, budget: PatternBudget) {
    if (source.length > MAX_PATTERN) budget.fail(`pattern ${quote(source)} has ${source.length} characters`);
    this.source = source;
    this.budget = budget;
    this.root = new Parser(source, budget).whole();
  }

  /** As re.fullmatch. */
  isWhole(text: string): boolean {
    return this.ends(text, 0).has(text.length);
  }

  /** Where matches end that begin at `start`. */
  ends(text: string, start: number): ReadonlySet<number> {
    return this.from(this.root, text, new Set([start]));
  }

  /** The positions that `node` leads to from one of `starts`. */
  private from(node: Node, text: string, starts: ReadonlySet<number>): ReadonlySet<number> {
    this.budget.take(starts.size + 1, this.source);
    switch (node.kind) {
      case 'one': {
        const ends = new Set<number>();
        for (const at of starts) if (at < text.length && node.test(text.charCodeAt(at))) ends.add(at + 1);
        return ends;
      }
      case 'sequence': {
        let at = starts;
        for (const each of node.of) {
          if (at.size === 0) return at;
          at = this.from(each, text, at);
        }
        return at;
      }
      case 'either':
        return new Set(node.of.flatMap((each) => [...this.from(each, text, starts)]));
      case 'repeat':
        return this.repeats(node, text, starts);
      case 'look':
        return new Set([...starts].filter((at) => this.looks(node, text, at) === node.isWanted));
      case 'edge':
        return new Set([...starts].filter((at) => isEdge(node.is, text, at)));
      default:
        return node satisfies never;
    }
  }

  private repeats(
    { of, least, most }: Extract<Node, { kind: 'repeat' }>,
    text: string,
    starts: ReadonlySet<number>,
  ): ReadonlySet<number> {
    let at = starts;
    for (let i = 0; i < least && at.size > 0; i++) at = this.from(of, text, at);
    const all = new Set(at);
    for (let i = least; i < most && at.size > 0; i++) {
      const next = this.from(of, text, at);
      at = new Set([...next].filter((each) => !all.has(each)));
      for (const each of at) all.add(each);
    }
    return all;
  }

  private looks({ of, isAhead }: Extract<Node, { kind: 'look' }>, text: string, at: number): boolean {
    if (isAhead) return this.from(of, text, new Set([at])).size > 0;
    for (let start = at; start >= 0; start--) if (this.from(of, text, new Set([start])).has(at)) return true;
    return false;
  }
}

function isEdge(is: 'begin' | 'end' | 'word' | 'inside', text: string, at: number): boolean {
  if (is === 'begin') return at === 0;
  if (is === 'end') return at === text.length;
  const isWordAt = (i: number): boolean => i >= 0 && i < text.length && isWord(text.charCodeAt(i));
  return (isWordAt(at - 1) !== isWordAt(at)) === (is === 'word');
}
