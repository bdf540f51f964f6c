/** Sets of questions that are computed one behind another on the same devices. */
import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { evaluate, type EvaluateOptions, type Evaluation } from '../../evaluate/evaluate.js';
import type { Scores } from '../../evaluate/metrics.js';
import { planQuestions } from '../../evaluate/questionPlan.js';
import type { PathScorer } from '../../evaluate/scorer.js';
import type { TokenizedQuestion } from '../../evaluate/tokenize.js';
import { Turns } from '../../evaluate/turns.js';
import { inParts } from '../../system/text.js';
import { fakePathScorer, type FakePathScorer, processEnded } from './support/fakePathScorer.js';
import { fakeScorer, referenceScore } from './support/fakeScorer.js';
import { bareQuestion } from './support/questions.js';

/**
 * A call takes so many turns of the event loop. Planning, which is done in parts on the same loop, has as many on a
 * machine that is busy, so who comes first does not depend on a clock.
 */
async function turnsOfLoop(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await setImmediate();
}

/** Questions of four subjects with shots of their own; sets differ in every token. */
const questionsOf = (set: number, count: number): TokenizedQuestion[] =>
  Array.from({ length: count }, (_, i) => ({
    docId: set * 10_000 + i,
    context: Int32Array.from([
      ...Array.from({ length: 40 }, (_token, at) => set * 100_000 + (i % 4) * 100 + at),
      set * 100_000 + 1000 + i,
    ]),
    continuations: [1, 2, 3, 4].map((letter) => Int32Array.of(letter)),
  }));

const expected = (tokenized: readonly TokenizedQuestion[]): Scores[] =>
  tokenized.map(({ docId, context, continuations }) => {
    const scored = continuations.map((continuation) => referenceScore(context, continuation));
    return { docId, ll: scored.map(({ ll }) => ll), greedy: scored.map(({ isGreedy }) => isGreedy) };
  });

/** What happens, in order: calls of sets, by their numbers, and `landed` where all answers of one are there. */
interface Log {
  readonly events: string[];
  /** The most calls that were in flight on one device. */
  most: number;
  /** By device. */
  readonly flying: number[];
}

function made(log: Log, set: number, lane: number): void {
  log.events.push(`${set}`);
  log.flying[lane] = (log.flying[lane] ?? 0) + 1;
  log.most = Math.max(log.most, log.flying[lane]);
}

/** The scorer as one set sees it, so that its calls are told apart. `onCall` is told of each. */
function watched(scorer: PathScorer, set: number, log: Log, onCall?: () => void): PathScorer {
  return {
    ...scorer,
    open: async (lane) => {
      const opened = await scorer.open(lane);
      return {
        ...opened,
        score: (batch) => {
          made(log, set, lane);
          onCall?.();
          return opened.score(batch).finally(() => log.flying[lane]!--);
        },
      };
    },
  };
}

const SETS = [0, 1, 2].map((set) => questionsOf(set, 30 + set));

/** Computes all sets, each begun while the one before is computed. */
async function computeAll(
  optionsOf: (set: number, log: Log) => Partial<EvaluateOptions>,
  sets = SETS,
): Promise<{ readonly found: readonly Evaluation[]; readonly log: Log }> {
  const turns = new Turns();
  const log: Log = { events: [], most: 0, flying: [] };
  const found = await Promise.all(
    sets.map(async (tokenized, set) => {
      const turn = turns.next();
      try {
        const options = {
          ...{ tokenized, scorer: fakeScorer(), sharing: 'tree' as const, turn },
          ...{ questions: tokenized.map(bareQuestion), ...optionsOf(set, log) },
        };
        return await evaluate(options);
      } finally {
        log.events.push(`landed ${set}`);
        turn.close();
      }
    }),
  );
  for (const [set, { scores }] of found.entries()) expect(scores).toEqual(expected(sets[set]!));
  return { found, log };
}

/** The first call of each set comes after the last of the one before, and before all of its answers are there. */
function expectNoGaps({ events }: Log): void {
  for (const set of [1, 2]) {
    const begun = events.indexOf(`${set}`);
    expect(begun).toBeGreaterThan(events.lastIndexOf(`${set - 1}`));
    expect(begun).toBeLessThan(events.indexOf(`landed ${set - 1}`));
  }
}

const walks = (scorer: FakePathScorer) => (set: number, log: Log) => ({ pathScorer: watched(scorer, set, log) });

describe('sets one behind another', () => {
  it('leave a device no gap, and no more calls in flight than usual', async () => {
    const scorer = fakePathScorer({ before: () => turnsOfLoop(100) });
    const { found, log } = await computeAll(walks(scorer));
    expectNoGaps(log);
    expect(log.most).toBe(2);
    expect(found.reduce((sum, { microBatches }) => sum + microBatches, 0)).toBe(scorer.calls.length);
  });

  it('share several devices, each of which goes on when it has made its calls', async () => {
    const { log } = await computeAll(
      walks(fakePathScorer({ lanes: 3, before: (lane) => turnsOfLoop(100 + 10 * lane) })),
    );
    expect(log.most).toBe(2);
    for (const set of [1, 2])
      expect(log.events.indexOf(`${set}`)).toBeLessThan(log.events.indexOf(`landed ${set - 1}`));
  });

  it('follow each other in micro-batches, also where devices run out of memory', async () => {
    let calls = 0;
    const plain = fakeScorer({ maxTokens: 256, maxRows: 256, inFlight: 2 });
    const { log } = await computeAll((set, own) => ({
      scorer: {
        ...plain,
        score: async (batch) => {
          made(own, set, 0);
          await turnsOfLoop(20);
          own.flying[0]!--;
          if (calls++ === 1) throw Object.assign(new Error('full'), { name: 'OutOfDeviceMemory' });
          return plain.score(batch);
        },
      },
    }));
    expect(log.most).toBe(plain.inFlight);
    for (const set of [1, 2])
      expect(log.events.indexOf(`${set}`)).toBeLessThan(log.events.indexOf(`landed ${set - 1}`));
  });

  it('change between walks, two phases and micro-batches', async () => {
    const scorer = fakePathScorer({ before: () => turnsOfLoop(10) });
    const { log } = await computeAll((set, own) =>
      set === 1 ? {} : { ...walks(scorer)(set, own), sharing: set === 0 ? 'tree' : 'kv' },
    );
    expect(log.events.indexOf('landed 0')).toBeLessThan(log.events.indexOf('landed 1'));
  });

  it.each([1, 2])('do the work of a process that ends between two of them again, on %i devices', async (lanes) => {
    const counts: number[] = [];
    await computeAll(walks(fakePathScorer({ lanes, before: (lane) => void (counts[lane] = (counts[lane] ?? 0) + 1) })));
    // The process ends in each call in turn: also where two sets have calls in flight.
    for (let at = 0; at < counts[0]!; at++) {
      let calls = 0;
      const before = (lane: number): void => {
        if (lane === 0 && calls++ === at) throw processEnded();
      };
      await computeAll(walks(fakePathScorer({ lanes, before })));
    }
  });

  it('go on without a device that is lost, whose part the others compute', async () => {
    let opened = 0;
    const scorer = fakePathScorer({
      lanes: 2,
      onOpen: (lane) => {
        if (lane === 1 && ++opened > 1) throw new Error('no such device');
      },
      before: async (lane, index) => {
        await turnsOfLoop(10);
        if (lane === 1 && index > 3) throw processEnded();
      },
    });
    await computeAll(walks(scorer));
  });

  it('let the one before have a device again for what another has lost', async () => {
    let opened = 0;
    let begin = (): void => undefined;
    const nextSet = new Promise<void>((resolve) => (begin = resolve));
    const scorer = fakePathScorer({
      lanes: 2,
      onOpen: (lane) => {
        if (lane === 1 && ++opened > 1) throw new Error('no such device');
      },
      // The second device ends when the first is at work on the next set.
      before: async (lane) => {
        if (lane === 0) return turnsOfLoop(10);
        await nextSet;
        throw processEnded();
      },
    });
    const { log } = await computeAll(
      (set, own) => ({ pathScorer: watched(scorer, set, own, set === 1 ? begin : undefined) }),
      [SETS[0]!, questionsOf(1, 600)],
    );
    expect(log.events.indexOf('landed 0')).toBeGreaterThan(log.events.indexOf('1'));
    expect(log.events.indexOf('landed 0')).toBeLessThan(log.events.lastIndexOf('1'));
  });

  it('end all when one ends early', async () => {
    const stop = new AbortController();
    const scorer = fakePathScorer({ before: (_lane, index) => (index === 1 ? stop.abort() : undefined) });
    const turns = new Turns();
    const both = SETS.slice(0, 2).map(async (tokenized) => {
      const turn = turns.next();
      const questions = tokenized.map(bareQuestion);
      const { signal } = stop;
      return evaluate({
        ...{ questions, tokenized, scorer: fakeScorer(), sharing: 'tree', pathScorer: scorer, turn, signal },
      });
    });
    expect((await Promise.all(both)).map(({ isInterrupted }) => isInterrupted)).toEqual([true, true]);
    expect(scorer.calls.length).toBeLessThan(5);
  });

  it('do not wait while a later one is planned', async () => {
    const many = questionsOf(7, 2500);
    let isPlanned = false;
    const planning = inParts(
      planQuestions({ tokenized: many, sharing: 'tree', scorer: fakeScorer({ maxTokens: 4096, maxRows: 4096 }) }),
    ).then(() => (isPlanned = true));
    const [tokenized] = SETS;
    const questions = tokenized!.map(bareQuestion);
    const pathScorer = fakePathScorer();
    await evaluate({ questions, tokenized: tokenized!, scorer: fakeScorer(), sharing: 'tree', pathScorer });
    expect(isPlanned).toBe(false);
    await planning;
  });
});
