/** The table of sequences against arrays that are made from scratch for every step, and messages that are refused. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SequenceTable, type StepInputs } from '../../../driver/devices/sequenceTable.js';
import type { Draft } from '../../../draft/drafter.js';
import type { DraftBranches, StepMessage } from '../../../engine/device.js';
import { PAGE_TOKENS, PagePool } from '../../../engine/pages.js';
import { Scheduler } from '../../../engine/scheduler.js';
import { Sequence } from '../../../engine/sequence.js';
import type { Step } from '../../../engine/stepMessage.js';
import { RowList } from '../../../runtime/rowList.js';
import { randomNumbers } from '../../support/numbers.js';

const PAGES = 24;
const KEYS = 700;
const KEPT_ROWS = 6;

/** Each token's position, row of the cache, and path, of what the scheduler says. */
const fromScratch = ({ pieces }: Step) =>
  pieces.flatMap(({ sequence, from, to, drafts, branchPages }) => {
    const own = (length: number): number[] =>
      Array.from(
        { length },
        (_each, at) => sequence.pages[Math.floor(at / PAGE_TOKENS)]! * PAGE_TOKENS + (at % PAGE_TOKENS),
      );
    const paths = Array.from({ length: to + drafts.chain - from }, (_, i) => own(from + i + 1));
    const chain = paths.length - drafts.chain;
    drafts.branches.forEach(({ first, end }, b) => {
      for (let node = first; node < end; node++)
        paths.push([
          ...(paths[drafts.parents[node]! + chain] ?? own(to)),
          branchPages[b]! * PAGE_TOKENS + node - first,
        ]);
    });
    return paths.map((path) => ({ position: path.length - 1, slot: path.at(-1), path }));
  });

/** Right and wrong drafts, as a tree at random. */
function randomDraft({ tokens }: Sequence, below: (n: number) => number): Draft {
  const count = below(15);
  const parents = Array.from({ length: count }, (_, node) => (below(3) > 0 ? node - 1 : below(node + 1) - 1));
  const depth = (node: number): number => (node < 0 ? 0 : 1 + depth(parents[node]!));
  const right = (node: number): number => (tokens.length + depth(node) - 1) % 7;
  return { parents, tokens: parents.map((_, node) => (below(3) > 0 ? right(node) : 7 + below(3))) };
}

/** The lengths of all paths. */
const keysIn = ({ pieces }: Step): number =>
  pieces.reduce(
    (sum, { to, drafts: { chain, branches } }) =>
      branches.reduce((all, { first, end, depth }) => all + to + depth + end - first, sum + to + chain),
    0,
  );

const fromTable = ({ position, slot, begin, key }: StepInputs) =>
  Array.from(position, (at, i) => ({
    position: at,
    slot: slot[i],
    path: [...key.subarray(begin[i]!, begin[i]! + at + 1)],
  }));

/** The same tokens in any order, and the same rows, which may lie elsewhere. */
function expectSameTokens(got: StepInputs, want: StepInputs): void {
  const tokensOf = (inputs: StepInputs) =>
    fromTable(inputs).map((each, i) => ({
      ...each,
      token: inputs.tokens[i],
      isFed: inputs.isFed![i],
      feed: inputs.feed![i],
    }));
  const [tokens, wanted] = [tokensOf(got), tokensOf(want)];
  expect(tokens.toSorted((a, b) => a.slot! - b.slot!)).toEqual(wanted.toSorted((a, b) => a.slot! - b.slot!));
  expect(Array.from(got.row, (at) => tokens[at])).toEqual(Array.from(want.row, (at) => wanted[at]));
}

describe('the table of sequences', () => {
  const seeds = fc.record({ seed: fc.integer({ min: 1, max: 1e9 }), most: fc.integer({ min: 1, max: 60 }) });

  it('makes what is made from scratch, with requests, cancels, pauses, failures and sizes at random', () => {
    let [preemptions, resizes, calls, moves, branches, accepted] = [0, 0, 0, 0, 0, 0];
    fc.assert(
      fc.property(seeds, ({ seed, most }) => {
        const random = randomNumbers(seed);
        const below = (n: number): number => Math.floor((random() + 0.5) * n);
        const shape = { pages: PAGES, keys: KEYS, maxLength: 300, keptRows: KEPT_ROWS };
        const table = new SequenceTable(shape);
        const grouping = new SequenceTable({ ...shape, leastGrouped: 2 });
        const pool = new PagePool(PAGES);
        const scheduler = new Scheduler(pool, { tokens: most, keys: KEYS, keptRows: KEPT_ROWS });
        const live: Sequence[] = [];
        const forget = (sequence: Sequence): void => {
          scheduler.remove(sequence);
          live.splice(live.indexOf(sequence), 1);
        };
        let before: Step | undefined;
        const land = (): void => {
          if (before === undefined) return;
          for (const { sequence, at, drafts, node = -1 } of before.asked)
            if (live.includes(sequence) && (drafts === undefined || sequence.hasAccepted(drafts, node, at))) {
              sequence.read(at, at % 7);
              if (drafts !== undefined && node >= drafts.chain) accepted++;
            }
          scheduler.read(before);
          for (const { sequence } of before.asked)
            if (live.includes(sequence) && (sequence.tokens.length >= sequence.longest || below(20) === 0))
              forget(sequence);
          before = undefined;
        };
        for (let turn = 0; turn < 60; turn++) {
          for (let i = below(3); i > 0; i--) {
            const prompt = Array.from({ length: 1 + below(70) }, (_, at) => (at < 40 ? at : below(100)));
            const sequence = new Sequence({ prompt, longest: prompt.length + 1 + below(40), priority: below(2) });
            sequence.isDrafting = below(2) === 0;
            live.push(sequence);
            scheduler.add(sequence);
          }
          const chosen = live[below(2 * live.length)];
          if (chosen !== undefined)
            [() => forget(chosen), () => scheduler.pause(chosen), () => scheduler.resume(chosen)][below(3)]!();
          if (below(8) === 0) {
            const pages = PAGES - below(10);
            scheduler.resize(pages);
            table.resize(pages);
            grouping.resize(pages);
            resizes++;
          }
          for (const sequence of live) if (sequence.isDrafting) sequence.draft = randomDraft(sequence, below);
          const step = scheduler.next();
          if (step !== undefined) {
            calls++;
            branches += step.message.branches?.of.length ?? 0;
            const { inputs } = table.apply(step.message);
            expect(fromTable(inputs)).toEqual(fromScratch(step));
            const grouped = grouping.apply(step.message).inputs;
            expectSameTokens(grouped, inputs);
            if (grouped.row.some((token, i) => token !== inputs.row[i])) moves++;
            expect(inputs.key.every((row) => row >= 0 && row < pool.total * PAGE_TOKENS)).toBe(true);
            expect(RowList.of(inputs.key)!.rows).toBe(pool.total * PAGE_TOKENS);
            expect(keysIn(step)).toBeLessThanOrEqual(KEYS);
            inputs.isFed!.forEach((isFed, i) => isFed === 1 && expect(before!.message.keep[inputs.feed![i]!]).toBe(1));
            if (below(3) > 0) scheduler.foresee(step);
          }
          if (step !== undefined && below(12) === 0) {
            // It failed, and what was begun meanwhile is not of use either.
            scheduler.rewind(step);
            if (before !== undefined) scheduler.rewind(before);
            before = undefined;
          } else {
            land();
            before = step;
          }
        }
        land();
        for (const sequence of [...live]) forget(sequence);
        expect(pool.held).toBe(0);
        preemptions += scheduler.preemptions;
      }),
      { numRuns: 24, seed: 30 },
    );
    expect(preemptions).toBeGreaterThan(50);
    expect(resizes).toBeGreaterThan(50);
    expect(calls).toBeGreaterThan(800);
    expect(moves).toBeGreaterThan(20);
    expect(branches).toBeGreaterThan(150);
    expect(accepted).toBeGreaterThan(40);
  });

  it('keeps entries where they are, so that a step writes those of its tokens alone', () => {
    const table = new SequenceTable({ pages: 1 << 10, keys: 1 << 14, maxLength: 4000 });
    const written: number[] = [];
    for (let step = 0; step < 200; step++) {
      const { inputs } = table.apply(
        messageOf({
          ...{ sequence: step % 2, from: 500 + (step >> 1), kept: step < 2 ? 0 : 40 },
          pages: step < 2 ? pagesFrom(100 * step, 40) : [],
        }),
      );
      const { changes, version } = RowList.of(inputs.key)!.history;
      let sum = 0;
      for (let i = 0; i < changes.length; i += 3)
        if (changes[i + 2] === version - 1) sum += changes[i + 1]! - changes[i]!;
      written.push(sum);
    }
    // Both sequences move once, when they have outgrown the room that they began with.
    expect(written.filter((each) => each > 1).length).toBeLessThanOrEqual(4);
    expect(written.filter((each) => each === 1).length).toBeGreaterThanOrEqual(196);
  });
});

describe('a call of many sequences', () => {
  /** Sequences by their pages, one new token each in the last of them. */
  const callOf = (pages: readonly (readonly number[])[], isKnown = false): StepMessage => {
    const each = (value: (i: number) => number): Int32Array => Int32Array.from(pages, (_, i) => value(i));
    return {
      ended: new Int32Array(0),
      sequence: each((i) => i),
      keptPages: each((i) => (isKnown ? pages[i]!.length : 0)),
      newPages: each((i) => (isKnown ? 0 : pages[i]!.length)),
      pages: Int32Array.from(isKnown ? [] : pages.flat()),
      from: each((i) => (pages[i]!.length - 1) * PAGE_TOKENS + (isKnown ? 1 : 0)),
      count: each(() => 1),
      tokens: each((i) => 100 + i),
      row: each((i) => pages.length - 1 - i),
      ...{ target: each(() => 0), keyLow: each(() => 0), keyHigh: each(() => 0), keep: each(() => 0) },
      inverseTemperature: new Float32Array(pages.length),
    };
  };
  const tableOf = (): SequenceTable => new SequenceTable({ pages: 40, keys: 4000, keptRows: 1, leastGrouped: 4 });
  // Children of two paths in turn, of a problem whose first page is theirs; one alone; those of one more in turn.
  const pages = [
    [0, 1, 10],
    [0, 2, 11],
    [0, 1, 12],
    [20, 21],
    [0, 2, 13],
    [0, 1, 14],
    [0, 1, 15, 16],
  ];

  it('lists those that go on from the same pages one behind another, and rows follow', () => {
    const table = tableOf();
    for (const isKnown of [false, true]) {
      const { tokens, row } = table.apply(callOf(pages, isKnown)).inputs;
      expect([...tokens]).toEqual([100, 102, 105, 106, 101, 104, 103]);
      expect(Array.from(row, (at) => tokens[at])).toEqual([106, 105, 104, 103, 102, 101, 100]);
    }
  });

  it('leaves calls alone whose families stand together, and small ones', () => {
    const together = [pages[0]!, pages[2]!, pages[3]!, pages[1]!, pages[4]!];
    expect([...tableOf().apply(callOf(together)).inputs.tokens]).toEqual([100, 101, 102, 103, 104]);
    expect([...tableOf().apply(callOf(pages.slice(0, 3))).inputs.tokens]).toEqual([100, 101, 102]);
  });

  it('forgets what sequences had that ended', () => {
    const table = tableOf();
    table.apply(callOf(pages));
    const alone = callOf([[0, 1, 10], [22], [0, 23, 24], [25], [26]]);
    const { tokens } = table.apply({ ...alone, ended: Int32Array.from(pages, (_, i) => i) }).inputs;
    expect([...tokens]).toEqual([100, 102, 101, 103, 104]);
  });
});

describe('adapters of a call', () => {
  const of = (...values: number[]): Int32Array => Int32Array.from(values);
  const NAMES = ['adapter', 'rowAdapter'];
  const tableOf = (slot = -1, inputs = NAMES): SequenceTable =>
    new SequenceTable({ pages: 40, keys: 4000, leastGrouped: 3, adapters: { slots: 4, slot, inputs } });
  /** Three parts of 2, 1 and 3 tokens, whose second goes elsewhere, and two branches; a row for each token. */
  const message: StepMessage = {
    ended: of(),
    sequence: of(0, 1, 2),
    keptPages: of(0, 0, 0),
    newPages: of(2, 1, 2),
    pages: of(0, 1, 20, 0, 3),
    from: of(16, 0, 16),
    count: of(2, 1, 3),
    tokens: of(100, 101, 110, 120, 121, 122, 105, 106, 125),
    row: of(8, 7, 6, 5, 4, 3, 2, 1, 0),
    ...{ target: new Int32Array(9), keyLow: new Int32Array(9), keyHigh: new Int32Array(9), keep: new Int32Array(9) },
    inverseTemperature: new Float32Array(9),
    branches: { of: of(0, 2), from: of(17, 18), count: of(2, 1), page: of(30, 31) },
  };
  const slots = new Map([
    [0, 2],
    [1, -1],
    [2, 3],
  ]);
  /** Tokens 10x, 11x and 12x are of parts 0, 1 and 2. */
  const slotOf = (token: number): number => slots.get(Math.floor(token / 10) - 10)!;

  it('are those of the parts, for new tokens, branches and rows, wherever they lie', () => {
    const { tokens, row, adapter, rowAdapter } = tableOf().apply({ ...message, adapter: of(2, -1, 3) }).inputs;
    // The third part goes on from the same page as the first.
    expect([...tokens]).toEqual([100, 101, 105, 106, 120, 121, 122, 125, 110]);
    expect([...adapter!]).toEqual(Array.from(tokens, slotOf));
    expect([...rowAdapter!]).toEqual(Array.from(row, (at) => slotOf(tokens[at]!)));
    const together = new SequenceTable({ pages: 40, keys: 4000, adapters: { slots: 4, slot: -1, inputs: NAMES } });
    const { inputs } = together.apply({ ...message, adapter: of(2, -1, 3) });
    expect([...inputs.adapter!]).toEqual(Array.from(inputs.tokens, slotOf));
  });

  it('are those of the model where a message names none, and only what the function takes', () => {
    const { adapter, rowAdapter } = tableOf(0).apply(message).inputs;
    expect([...adapter!, ...rowAdapter!]).toEqual(Array.from({ length: 18 }, () => 0));
    expect([...tableOf().apply(message).inputs.adapter!]).toEqual(Array.from({ length: 9 }, () => -1));
    expect(tableOf(0, ['adapter']).apply(message).inputs).not.toHaveProperty('rowAdapter');
    expect(new SequenceTable({ pages: 40, keys: 4000 }).apply(message).inputs).not.toHaveProperty('adapter');
  });

  it.each([
    ['slot 4 of 4', of(0, 4, 0)],
    ['slot -2 of 4', of(0, 0, -2)],
    ['adapter is no array of 3 whole numbers', of(0)],
  ])('are refused: %s', (why, adapter) => {
    const table = tableOf();
    expect(() => table.apply({ ...message, adapter })).toThrow(why);
    expect(() => new SequenceTable({ pages: 40, keys: 4000 }).apply({ ...message, adapter: of(0, -1, -1) })).toThrow(
      'slot 0 of 0',
    );
    expect([...table.apply(message).inputs.adapter!]).toHaveLength(9);
  });
});

const pagesFrom = (first: number, count: number): number[] => Array.from({ length: count }, (_, i) => first + i);

/** A step of one sequence by one token, which has a row. */
function messageOf(part: {
  readonly sequence?: number;
  readonly kept?: number;
  readonly pages: readonly number[];
  readonly from: number;
}): StepMessage {
  const { sequence = 0, kept = 0, pages, from } = part;
  const one = (value: number): Int32Array => Int32Array.of(value);
  return {
    ended: new Int32Array(0),
    sequence: one(sequence),
    keptPages: one(kept),
    newPages: one(pages.length),
    pages: Int32Array.from(pages),
    from: one(from),
    count: one(1),
    tokens: one(7),
    ...{ row: one(0), target: one(0), keyLow: one(0), keyHigh: one(0), keep: one(0) },
    inverseTemperature: Float32Array.of(0),
  };
}

/** What three rows have beside their tokens. */
const REST_OF_THREE = {
  ...{ target: new Int32Array(3), keyLow: new Int32Array(3), keyHigh: new Int32Array(3), keep: new Int32Array(3) },
  inverseTemperature: new Float32Array(3),
};

describe('a message', () => {
  const begin = (): SequenceTable => {
    const table = new SequenceTable({ pages: 10, keys: 100, maxLength: 90, keptRows: 4 });
    table.apply(messageOf({ pages: [3, 4], from: 20 }));
    return table;
  };
  const next = messageOf({ kept: 2, pages: [5], from: 21 });
  const of = (...values: number[]): Int32Array => Int32Array.from(values);

  /** Two branches of three and one tokens, the second of which leaves the first. */
  const branching = (changed: Partial<Record<keyof DraftBranches, readonly number[]>>): Partial<StepMessage> => {
    const numbers = { of: [0, 1], from: [21, 22], count: [3, 1], page: [6, 7], ...changed };
    const arrays = Object.entries(numbers).map(([name, values]) => [name, of(...values)] as const);
    return { branches: Object.fromEntries(arrays) as unknown as DraftBranches, tokens: of(7, 1, 2, 3, 4) };
  };

  it('may have branches, of the text and of each other', () => {
    const { inputs } = begin().apply({ ...next, ...branching({}), row: of(0, 3, 4), ...REST_OF_THREE });
    const paths = fromTable(inputs).map(({ path }) => path);
    const text = [...Array.from({ length: 16 }, (_, i) => 48 + i), ...Array.from({ length: 5 }, (_, i) => 64 + i)];
    expect(paths).toEqual([
      [...text, 69],
      ...[1, 2, 3].map((count) => [...text, 96, 97, 98].slice(0, 21 + count)),
      [...text, 96, 112],
    ]);
    expect([...inputs.position]).toEqual([21, 21, 22, 23, 22]);
    expect([...inputs.slot]).toEqual([69, 96, 97, 98, 112]);
  });

  it.each<[string, Partial<StepMessage>]>([
    ['sequence 0 keeps 3 of 2 pages', { keptPages: of(3) }],
    ['sequence 0 keeps -1 of 2 pages', { keptPages: of(-1) }],
    ['sequence 1 keeps 2 of 0 pages', { sequence: of(1) }],
    ['a sequence of number -1', { sequence: of(-1) }],
    ['a sequence of number 1048576', { sequence: of(1 << 20) }],
    ['keeps 2 of 0 pages', { ended: of(0) }],
    ['sequence 0 gains 2 pages', { newPages: of(2) }],
    ['sequence 0 gains -1 pages', { newPages: of(-1) }],
    ['2 pages, where parts gain 1', { pages: of(5, 6) }],
    ['page 10 of 10', { pages: of(10) }],
    ['page -1 of 10', { pages: of(-1) }],
    ['has 3 pages for 1 tokens from 48 on', { from: of(48) }],
    ['has 3 pages for 1 tokens from -1 on', { from: of(-1) }],
    ['has 3 pages for 0 tokens', { count: of(0), tokens: of(), row: of(0) }],
    ['has 3 pages for 2147483647 tokens', { count: of(2 ** 31 - 1) }],
    ['2 tokens, where parts have 1', { tokens: of(1, 2) }],
    ['a row after token 1 of 1', { row: of(1) }],
    ['a row after token -1 of 1', { row: of(-1) }],
    ['a token of row 0, which the step before keeps not', { tokens: of(-1) }],
    ['a token of row 2147483647', { tokens: of(-(2 ** 31)) }],
    ['keep 2 of row 0', { keep: of(2) }],
    ['target is no array of 1 whole numbers', { target: of() }],
    ['keyLow is no array', { keyLow: Float32Array.of(0) as unknown as Int32Array }],
    ['pages is no array', { pages: [5] as unknown as Int32Array }],
    ['inverseTemperature is no array of 1 numbers', { inverseTemperature: new Float32Array(2) }],
    ['it has no parts', { ...Object.fromEntries(Object.entries(next).map(([name, of]) => [name, of.slice(0, 0)])) }],
    ['page 3 is copied, and copied to', { copies: { from: of(3), to: of(3), rows: of(4) } }],
    ['page 10 of 10', { copies: { from: of(3), to: of(10), rows: of(4) } }],
    ['17 rows of a page are copied', { copies: { from: of(3), to: of(6), rows: of(17) } }],
    ['a page is copied to twice', { copies: { from: of(3, 4), to: of(6, 6), rows: of(1, 1) } }],
    ['branch 0 leaves 1, of 1 parts', branching({ of: [1, 0] })],
    ['branch 0 leaves -1, of 1 parts', branching({ of: [-1, 0] })],
    ['branch 1 leaves 2, of 1 parts', branching({ of: [0, 2] })],
    ['branch 0 leaves at 23, not behind 0 and up to 22', branching({ from: [23, 22] })],
    ['branch 0 leaves at 0, not behind 0 and up to 22', branching({ from: [0, 22] })],
    ['branch 1 leaves at 21, not behind 21 and up to 24', branching({ from: [21, 21] })],
    ['branch 1 leaves at 25, not behind 21 and up to 24', branching({ from: [21, 25] })],
    ['branch 0 has 0 tokens', branching({ count: [0, 1] })],
    ['branch 0 has 17 tokens', branching({ count: [17, 1] })],
    ['branch 1 has 2147483647 tokens', branching({ count: [3, 2 ** 31 - 1] })],
    ['page 10 of 10', branching({ page: [10, 7] })],
    ['page -1 of 10', branching({ page: [6, -1] })],
    ['page 6 is written twice', branching({ page: [6, 6] })],
    ['page 4 is written twice', branching({ page: [4, 6] })],
    ['4 tokens, where parts have 5', { ...branching({}), tokens: of(7, 1, 2, 3) }],
    ['a row after token 5 of 5', { ...branching({}), row: of(5) }],
    ['branches.page is no array of 2', branching({ page: [6] })],
    ['branches.of is no array', { branches: {} as unknown as DraftBranches }],
    ['copies.rows is no array of 1', { copies: { from: of(3), to: of(6), rows: of() } }],
  ])('is refused: %s; and changes nothing', (why, changed) => {
    const [table, other] = [begin(), begin()];
    expect(() => table.apply({ ...next, ...changed })).toThrow(why);
    const [after, wanted] = [table.apply(next), other.apply(next)];
    expect({ ...after.inputs, key: [...after.inputs.key] }).toEqual({ ...wanted.inputs, key: [...wanted.inputs.key] });
  });

  it('is refused where a page is written by two, or a sequence comes twice, or keys are too many', () => {
    const table = begin();
    const two = (sequence: number, page: number): StepMessage => ({
      ended: of(),
      ...{ sequence: of(1, sequence), keptPages: of(0, 0), newPages: of(2, 2), pages: of(6, 7, 8, page) },
      ...{ from: of(17, 16), count: of(1, 1), tokens: of(7, 7), row: of(0, 1), target: of(0, 0) },
      ...{ keyLow: of(0, 0), keyHigh: of(0, 0), keep: of(0, 0), inverseTemperature: new Float32Array(2) },
    });
    expect(() => table.apply(two(2, 7))).toThrow('page 7 is written twice');
    expect(() => table.apply(two(1, 9))).toThrow('sequence 1 comes twice');
    expect(() => table.apply(two(2, 9))).not.toThrow();
  });

  it('is refused once its page has no memory any more, and its sequence is forgotten', () => {
    const table = begin();
    table.resize(4);
    expect(table.size).toBe(0);
    expect(() => table.apply(messageOf({ pages: [4], from: 0 }))).toThrow('page 4 of 4');
    expect([...table.apply(messageOf({ pages: [3], from: 2 })).inputs.key.subarray(0, 3)]).toEqual([48, 49, 50]);
  });
});

describe('a message for drafts', () => {
  const of = (...values: number[]): Int32Array => Int32Array.from(values);
  const tableOf = (takesFeatures: boolean): SequenceTable =>
    new SequenceTable({ pages: 10, keys: 100, keptRows: 4, draft: { keptRows: 2, takesFeatures } });
  const step = messageOf({ pages: [3, 4], from: 20 });
  const drafts: StepMessage = { ...messageOf({ kept: 2, pages: [], from: 21 }), isDraft: true };

  it('has the lists of steps, and tokens of its own', () => {
    const table = tableOf(false);
    table.apply({ ...step, keep: of(1) });
    expect(() => table.apply({ ...drafts, tokens: of(-1) })).toThrow(
      'a token of row 0, which the step before keeps not',
    );
    const { inputs } = table.apply({ ...drafts, keep: of(1) });
    expect(inputs).toMatchObject({ position: of(21), slot: of(4 * PAGE_TOKENS + 5), keep: of(0), isFed: of(0) });
    expect(Object.keys(inputs)).not.toContain('feature');
    expect(inputs.target).toEqual(of(0));
    // Steps and drafts go on from what each of them kept.
    expect(table.apply({ ...drafts, from: of(22), tokens: of(-1) }).inputs).toMatchObject({
      isFed: of(1),
      feed: of(0),
    });
    expect(table.apply({ ...messageOf({ kept: 2, pages: [], from: 21 }), tokens: of(-1) }).inputs.isFed).toEqual(of(1));
  });

  it('says where features lie: those of a position, and those that a row makes for the next one', () => {
    const table = tableOf(true);
    table.apply(step);
    const slot = (page: number, at: number): number => page * PAGE_TOKENS + at;
    const two = { ...drafts, from: of(14), count: of(2), tokens: of(7, 8) };
    expect(table.apply({ ...two, row: of(1) }).inputs).toMatchObject({
      feature: of(slot(3, 14), slot(3, 15)),
      keepFeature: of(slot(4, 0)),
    });
    // There is no page for what comes behind the last.
    expect(table.apply({ ...drafts, from: of(31) }).inputs.keepFeature).toEqual(of(-1));
  });

  it('is refused where it asks for more, or two parts write a page; and changes nothing', () => {
    const table = tableOf(true);
    table.apply(step);
    const copies = { from: of(3), to: of(6), rows: of(4) };
    expect(() => table.apply({ ...drafts, copies })).toThrow('drafts have neither copies nor branches nor filters');
    const rows = { row: of(0, 0), target: of(0, 0), keyLow: of(0, 0), keyHigh: of(0, 0), keep: of(0, 0) };
    expect(() => table.apply({ ...drafts, ...rows, inverseTemperature: new Float32Array(2) })).toThrow('has two rows');
    expect(() => table.apply({ ...drafts, keep: of(2) })).toThrow('keep 2 of row 0, where 2 are kept');
    const both = {
      ...{ sequence: of(0, 1), keptPages: of(2, 0), newPages: of(0, 2), pages: of(6, 4), from: of(15, 0) },
      ...{ count: of(1, 17), tokens: new Int32Array(18), row: of(0) },
    } as const;
    expect(() => table.apply({ ...drafts, ...both })).toThrow('page 4 is written twice');
    const plain = new SequenceTable({ pages: 10, keys: 100, keptRows: 4 });
    plain.apply(step);
    expect(() => plain.apply(drafts)).toThrow('the model has no function that drafts');
    expect(table.apply(drafts).inputs.position).toEqual(of(21));
  });
});
