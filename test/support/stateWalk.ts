/**
 * Messages to a device whose model has states of recurrent layers, as an engine sends them: several texts in pieces of
 * any length, some from a row of states that another has left at the end of a page, with drafts that are not taken, and
 * branches of drafts. Each new token is asked for the log-probability of the next one of its path.
 */
import type { StepMessage } from '../../engine/device.js';
import { PAGE_TOKENS } from '../../engine/pages.js';
import { randomNumbers } from './numbers.js';

/** A token that is asked for: the path up to the one after it. */
export type Asked = readonly number[];

export interface WalkStep {
  readonly message: StepMessage;
  /** For each row of the message, and so each of its tokens. */
  readonly asked: readonly Asked[];
}

interface Text {
  readonly tokens: readonly number[];
  readonly number: number;
  done: number;
  row: number;
  pages: number[];
}

interface Snapshot {
  readonly row: number;
  readonly tokens: readonly number[];
  readonly pages: readonly number[];
}

export interface WalkOptions {
  readonly seed: number;
  readonly vocab: number;
  readonly texts?: number;
  readonly length?: number;
  /** Most tokens of a step. */
  readonly most?: number;
}

/** The parts of one message while it is made. */
interface Parts {
  readonly sequence: number[];
  readonly keptPages: number[];
  readonly newPages: number[];
  readonly pages: number[];
  readonly from: number[];
  readonly count: number[];
  readonly stateFrom: number[];
  readonly tokens: number[];
  readonly asked: number[][];
  /** By token. */
  readonly to: [token: number, row: number][];
}

/** All steps of a walk, until each text has ended. */
export function walkStates({ seed, vocab, texts: count = 4, length = 45, most = 24 }: WalkOptions): WalkStep[] {
  const next = randomNumbers(seed);
  const below = (n: number): number => Math.floor((next() + 0.5) * n) % n;
  const chance = (part: number): boolean => next() + 0.5 < part;
  let [rows, pages, numbers] = [0, 0, 0];
  const free: number[] = [];
  const takeRow = (): number => free.pop() ?? rows++;
  const random = (n: number): number[] => Array.from({ length: n }, () => below(vocab));
  const begin = (tokens: readonly number[], from?: Snapshot): Text => ({
    tokens,
    number: numbers++,
    done: from?.tokens.length ?? 0,
    row: from?.row ?? -1,
    pages: [...(from?.pages ?? [])],
  });
  const running: Text[] = Array.from({ length: count }, () => begin(random(length - below(9))));
  const snapshots: Snapshot[] = [];
  const owned = new Set<number>();
  let forks = count;
  const steps: WalkStep[] = [];
  while (running.some(({ done, tokens }) => done < tokens.length - 1)) {
    if (forks > 0 && snapshots.length > 0 && chance(0.4)) {
      forks--;
      const from = snapshots[below(snapshots.length)]!;
      running.push(begin([...from.tokens, ...random(4 + below(20))], from));
    }
    const going = running.filter(({ done, tokens }) => done < tokens.length - 1);
    const chosen = going.filter((_, i) => i === 0 || chance(0.7));
    const parts: Parts = {
      ...{ sequence: [], keptPages: [], newPages: [], pages: [], from: [], count: [], stateFrom: [], tokens: [] },
      ...{ asked: [], to: [] },
    };
    const released: number[] = [];
    const branches: { of: number; from: number; path: number[]; page: number; first: readonly number[] }[] = [];
    for (const text of chosen) {
      const room = most - parts.tokens.length;
      if (room < 3) break;
      const isDrafted = chance(0.4);
      const left = text.tokens.length - 1 - text.done;
      const taken = isDrafted ? Math.min(left, 1 + below(3)) : Math.min(left, 1 + below(chance(0.5) ? 3 : room));
      // Tokens behind those that the text goes on with: another text, whose states are dropped.
      const wrong = isDrafted ? random(1 + below(3)) : [];
      const end = text.done + taken + wrong.length;
      const path = [...text.tokens.slice(0, text.done + taken), ...wrong];
      const part = parts.sequence.length;
      const first = parts.tokens.length;
      const held = text.pages.length;
      const added = Array.from({ length: Math.max(0, Math.ceil(end / PAGE_TOKENS) - held) }, () => pages++);
      parts.sequence.push(text.number);
      parts.keptPages.push(
        text.done === 0 || steps.some(({ message }) => message.sequence.includes(text.number)) ? held : 0,
      );
      parts.newPages.push(parts.keptPages.at(-1) === held ? added.length : held + added.length);
      parts.pages.push(...(parts.keptPages.at(-1) === held ? added : [...text.pages, ...added]));
      parts.from.push(text.done);
      parts.count.push(taken + wrong.length);
      parts.stateFrom.push(text.row);
      for (let at = text.done; at < end; at++) {
        parts.tokens.push(path[at]!);
        const after =
          at + 1 < text.done + taken ? path[at + 1]! : (path[at + 1] ?? text.tokens[at + 1] ?? below(vocab));
        parts.asked.push([...path.slice(0, at + 1), after]);
      }
      const last = first + taken - 1;
      const isShared = text.row >= 0 && (snapshots.some(({ row }) => row === text.row) || !owned.has(text.row));
      const inPlace = text.row >= 0 && !isShared && chance(0.5) && wrong.length === 0;
      const row = inPlace ? text.row : takeRow();
      // Drafts that are not taken have rows of their own, which are free then.
      wrong.forEach((_, i) => {
        const dropped = takeRow();
        released.push(dropped);
        parts.to.push([last + 1 + i, dropped]);
      });
      parts.to.push([last, row]);
      const border = Math.floor((text.done + taken) / PAGE_TOKENS) * PAGE_TOKENS;
      if (border > text.done && chance(0.8)) {
        const kept = takeRow();
        parts.to.push([first + border - 1 - text.done, kept]);
        snapshots.push({
          row: kept,
          tokens: text.tokens.slice(0, border),
          pages: [...text.pages, ...added].slice(0, border / PAGE_TOKENS),
        });
      }
      if (!inPlace && text.row >= 0 && !isShared) {
        released.push(text.row);
        owned.delete(text.row);
      }
      owned.add(row);
      text.pages = [...text.pages, ...added];
      const whole = Math.ceil((text.done + taken) / PAGE_TOKENS);
      const begun = text.done;
      text.done += taken;
      text.row = row;
      text.pages = text.pages.slice(0, Math.max(whole, held));
      for (let b = below(4); isDrafted && b > 0; b--) {
        const own = random(1 + below(3));
        const onto = branches.filter(({ of }) => of === part || of < 0);
        if (chance(0.3) && onto.length > 0 && branches.at(-1)!.path.length > 0 && branches.at(-1)!.of === part) {
          const before = branches.at(-1)!;
          const from = before.from + 1 + below(before.path.length);
          const shared = [...before.first.slice(0, before.from), ...before.path].slice(0, from);
          branches.push({ of: -branches.length, from, path: own, page: pages++, first: shared });
        } else {
          const from = begun + 1 + below(taken + wrong.length);
          branches.push({ of: part, from, path: own, page: pages++, first: path.slice(0, from) });
        }
      }
    }
    const inParts = parts.sequence.length;
    for (const { path, first, from } of branches)
      path.forEach((token, i) => {
        parts.tokens.push(token);
        parts.asked.push([...first.slice(0, from), ...path.slice(0, i + 1), path[i + 1] ?? below(vocab)]);
      });
    const to = parts.to.sort(([a], [b]) => a - b);
    const all = Int32Array.from(parts.tokens, (_, i) => i);
    const none = all.map(() => 0);
    steps.push({
      asked: parts.asked,
      message: {
        ended: new Int32Array(0),
        ...{ sequence: Int32Array.from(parts.sequence), keptPages: Int32Array.from(parts.keptPages) },
        ...{ newPages: Int32Array.from(parts.newPages), pages: Int32Array.from(parts.pages) },
        ...{ from: Int32Array.from(parts.from), count: Int32Array.from(parts.count) },
        ...{ tokens: Int32Array.from(parts.tokens), row: all, keyLow: none, keyHigh: none, keep: none },
        target: Int32Array.from(parts.asked, (path) => path.at(-1)!),
        inverseTemperature: new Float32Array(all.length),
        branches: {
          of: Int32Array.from(branches, ({ of }, b) => (of < 0 ? inParts + b - 1 : of)),
          from: Int32Array.from(branches, ({ from }) => from),
          count: Int32Array.from(branches, ({ path }) => path.length),
          page: Int32Array.from(branches, ({ page }) => page),
        },
        states: {
          from: Int32Array.from(parts.stateFrom),
          token: Int32Array.from(to, ([token]) => token),
          to: Int32Array.from(to, ([, row]) => row),
        },
      },
    });
    free.push(...released);
  }
  return steps;
}

/** Paths of a walk that are no beginnings of others. */
export function pathsOfWalk(steps: readonly WalkStep[]): readonly (readonly number[])[] {
  const all = new Map(steps.flatMap(({ asked }) => asked.map((path) => [path.join(), path] as const)));
  const begun = new Set<string>();
  for (const path of all.values()) for (let end = 1; end < path.length; end++) begun.add(path.slice(0, end).join());
  return [...all].filter(([key]) => !begun.has(key)).map(([, path]) => path);
}

/** Inputs of `score` for these paths, each a tree of its own, whose tokens but the last are asked for the next. */
export function scoreInputs(paths: readonly (readonly number[])[]): {
  readonly inputs: Readonly<Record<'tokens' | 'position' | 'subtreeEnd' | 'row' | 'target', Int32Array>>;
  /** For each row the path up to its target. */
  readonly keys: readonly string[];
} {
  const arrays: Record<'tokens' | 'position' | 'subtreeEnd' | 'row' | 'target', number[]> = {
    ...{ tokens: [], position: [], subtreeEnd: [], row: [], target: [] },
  };
  const keys: string[] = [];
  for (const path of paths) {
    const first = arrays.tokens.length;
    for (let at = 0; at < path.length - 1; at++) {
      arrays.tokens.push(path[at]!);
      arrays.position.push(at);
      arrays.subtreeEnd.push(first + path.length - 1);
      arrays.row.push(first + at);
      arrays.target.push(path[at + 1]!);
      keys.push(path.slice(0, at + 2).join());
    }
  }
  const inputs = Object.fromEntries(Object.entries(arrays).map(([name, list]) => [name, Int32Array.from(list)]));
  return { inputs: inputs as Record<keyof typeof arrays, Int32Array>, keys };
}
