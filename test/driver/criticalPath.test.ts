/** What a start waited for: by hand, and for any spans. */
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { criticalPath, PHASES } from '../../driver/criticalPath.js';
import type { PhaseSpan } from '../../driver/phases.js';
import { printStartUp, startUpOf } from '../../driver/startUp.js';

const span = (name: string, begin: number, end: number, more: Partial<PhaseSpan> = {}): PhaseSpan => ({
  ...{ name, begin, end },
  ...more,
});
const onDevice = (name: string, begin: number, end: number, more: Partial<PhaseSpan> = {}): PhaseSpan =>
  span(name, begin, end, { replica: 0, ...more });

/** Steps as `name milliseconds`; `?`: not accounted. */
const stepsOf = (spans: readonly PhaseSpan[], origin?: number): readonly string[] =>
  criticalPath(spans, origin).map(
    ({ span: of, begin, end }) => `${of === undefined ? '?' : of.name}${of?.replica ?? ''} ${end - begin}`,
  );

/** A start in which nearly everything overlaps. */
const OVERLAPPING: readonly PhaseSpan[] = [
  span('process', 0, 110),
  span('open', 110, 160),
  span('plan', 160, 280),
  span('tokenize', 170, 500),
  span('pack', 500, 540),
  onDevice('process', 60, 150),
  onDevice('context', 150, 400),
  onDevice('kernels', 280, 590),
  onDevice('weights', 280, 890),
  onDevice('programs', 890, 950),
  span('first micro-batch', 955, 1100),
];

describe('the critical path', () => {
  it('goes back from the answer by what each phase waited for', () => {
    expect(stepsOf(OVERLAPPING)).toEqual([
      ...['process 60', 'process0 90', 'context0 250', 'weights0 490', 'programs0 60', '? 5', 'first micro-batch 145'],
    ]);
    // With a slower plan it is that, and with slower kernels those.
    const slower = (name: string, end: number): readonly PhaseSpan[] =>
      OVERLAPPING.map((each) => (each.name === name ? { ...each, end } : each));
    expect(stepsOf(slower('plan', 450)).slice(0, 4)).toEqual(['process 110', 'open 50', 'plan 290', 'weights0 440']);
    expect(stepsOf(slower('kernels', 889.5)).join()).not.toContain('kernels');
    expect(stepsOf(slower('kernels', 890)).join()).toContain('weights0');
    // Between the kernels and what they are for, nothing is known.
    const late = OVERLAPPING.map((each) => (each.name === 'weights' ? { ...each, end: 500 } : each));
    expect(stepsOf(late)).toEqual([
      ...['process 110', 'open 50', 'plan 120', 'kernels0 310', '? 300', 'programs0 60', '? 5'],
      'first micro-batch 145',
    ]);
  });

  it('lets absent phases drop out: a CPU in this process, an artifact, a plan from elsewhere', () => {
    const cpu = [
      ...[span('process', 0, 50), span('questions', 50, 60), span('open', 60, 100), span('compile', 100, 300)],
      ...[span('tokenize', 99, 250), span('pack', 300, 305), span('kernels', 310, 700), span('weights', 700, 800)],
      span('first micro-batch', 800, 900),
    ];
    expect(stepsOf(cpu)).toEqual([
      ...['process 50', 'questions 10', 'open 40', 'compile 200', '? 10', 'kernels 390', 'weights 100'],
      'first micro-batch 100',
    ]);
    const artifact = cpu.filter(({ name }) => name !== 'compile');
    expect(stepsOf(artifact).slice(0, 5)).toEqual(['process 50', 'questions 10', 'open 40', 'tokenize 150', '? 60']);
    expect(stepsOf([span('process', 0, 50), span('first token', 70, 90)])).toEqual([
      ...['process 50', '? 20', 'first token 20'],
    ]);
  });

  it('enters a device process where the command started it', () => {
    const spans = [
      ...[span('process', 0, 100), span('open', 100, 200), span('compile', 200, 260)],
      ...[onDevice('process', 230, 500), onDevice('open', 510, 520), onDevice('kernels', 520, 600)],
      ...[onDevice('weights', 600, 700), span('first token', 700, 800)],
    ];
    expect(stepsOf(spans)).toEqual([
      ...['process 100', 'open 100', 'compile 30', 'process0 270', '? 10', 'open0 10', 'kernels0 80', 'weights0 100'],
      'first token 100',
    ]);
    const early = spans.map((each) => (each.name === 'process' && each.replica === 0 ? { ...each, end: 240 } : each));
    expect(stepsOf(early).slice(0, 4)).toEqual(['process 100', 'open 100', 'compile 60', '? 250']);
  });

  it('of several replicas takes the one that was ready first, and of several spans the last', () => {
    const replica = (of: number, ready: number): readonly PhaseSpan[] => [
      span('process', 20, 100, { replica: of }),
      span('weights', 110, ready - 60, { replica: of }),
      span('weights', ready - 50, ready, { replica: of }),
    ];
    const spans = [
      ...[span('process', 0, 90), ...replica(0, 900), ...replica(1, 600), ...replica(2, 1100)],
      span('first micro-batch', 610, 1000),
    ];
    expect(stepsOf(spans)).toEqual([
      ...['process 20', 'process1 80', '? 10', 'weights1 430', '? 10', 'weights1 50', '? 10', 'first micro-batch 390'],
    ]);
  });

  it('counts what a phase did itself before and after another that lies within it', () => {
    const spans = [
      ...[span('process', 0, 100), span('compile', 100, 400), span('plan', 150, 300)],
      span('first token', 400, 450),
    ];
    expect(stepsOf(spans)).toEqual(['process 100', 'compile 50', 'plan 150', 'compile 100', 'first token 50']);
    // A call that was made before its devices were ready.
    const waiting = [span('process', 0, 100), onDevice('weights', 50, 500), span('first micro-batch', 110, 600)];
    expect(stepsOf(waiting)).toEqual(['process 100', 'weights0 400', 'first micro-batch 100']);
  });

  it('takes phases of one name for one where they overlap', () => {
    const spans = [
      ...[span('process', 0, 100), span('kernels', 100, 900), span('weights', 100, 500), span('kernels', 500, 900)],
      ...[span('programs', 900, 950), span('first token', 950, 1000)],
    ];
    expect(stepsOf(spans)).toEqual(['process 100', 'kernels 800', 'programs 50', 'first token 50']);
    expect(startUpOf(spans, [], 0)!.phases.filter(({ phase }) => phase === 'kernels')).toEqual([
      { process: 'command', phase: 'kernels', begin: 0.1, end: 0.9, spareSeconds: 0 },
    ]);
  });

  it('takes what a recorder says, and finds a place for names that it does not know', () => {
    const spans = [
      ...[span('process', 0, 100), span('download', 100, 300), span('open', 120, 150)],
      span('first token', 300, 400, { after: ['open'] }),
    ];
    expect(stepsOf(spans)).toEqual(['process 100', 'download 200', 'first token 100']);
    const said = spans.map((each) => (each.after === undefined ? each : { ...each, after: ['download'] }));
    expect(stepsOf(said)).toEqual(stepsOf(spans));
    expect(stepsOf([...spans.slice(0, 2), span('__proto__', 310, 330), span('first token', 340, 400)])).toEqual([
      ...['process 100', 'download 200', '? 10', '__proto__ 20', '? 10', 'first token 60'],
    ]);
  });

  it('is empty where nothing was recorded, and ends at the last phase where there is no answer', () => {
    expect([criticalPath([]), criticalPath([span('open', 5, Number.NaN)])]).toEqual([[], []]);
    expect(stepsOf([span('process', 0, 10), span('open', 10, 20)])).toEqual(['process 10', 'open 10']);
    expect(startUpOf([span('process', 0, 10)], [], 0)).toBeUndefined();
  });

  it('knows only phases that are phases, and that the documents list', () => {
    const names = Object.keys(PHASES);
    const documented = readFileSync(new URL('../../docs/debugging.md', import.meta.url), 'utf8');
    const rows = [...documented.matchAll(/^\| `(.*?)` \| (.*) \|$/gm)].map(([, name, about]) => [name, about]);
    expect(rows).toEqual(Object.entries(PHASES).map(([name, { about }]) => [name, about]));
    for (const { needs, after } of Object.values(PHASES))
      for (const name of [...needs, ...after].flat()) expect(names).toContain(name);
  });
});

/** Any spans, with what no clock would say among them. */
const anySpans = fc.array(
  fc.record(
    {
      name: fc.oneof(fc.constantFrom(...Object.keys(PHASES)), fc.constantFrom('other', '__proto__', 'constructor')),
      begin: fc.oneof({ weight: 9, arbitrary: fc.integer({ min: 0, max: 40 }) }, fc.constant(Number.NaN)),
      end: fc.oneof(
        { weight: 9, arbitrary: fc.integer({ min: 0, max: 60 }) },
        fc.constantFrom(Number.NaN, Infinity, -1, 1e7 / 3),
      ),
      replica: fc.integer({ min: 0, max: 2 }),
      isPart: fc.boolean(),
      bytes: fc.integer({ min: 0, max: 9 }),
      after: fc.array(fc.constantFrom(...Object.keys(PHASES), 'other'), { maxLength: 3 }),
    },
    { requiredKeys: ['name', 'begin', 'end'] },
  ),
  { maxLength: 30 },
);

describe('any spans', () => {
  it('give steps that follow one another from the command to the answer and are nowhere negative', () => {
    fc.assert(
      fc.property(anySpans, fc.integer({ min: -5, max: 20 }), (spans, origin) => {
        const steps = criticalPath(spans, origin);
        for (const [i, { span: of, begin, end }] of steps.entries()) {
          expect(end).toBeGreaterThan(begin);
          expect(begin).toBe(i === 0 ? origin : steps[i - 1]!.end);
          if (of !== undefined) expect(of.begin <= begin && end <= of.end).toBe(true);
        }
        const start = startUpOf(
          spans.filter(({ replica }) => replica === undefined),
          [],
          origin,
        );
        if (start === undefined || start.seconds <= 0) return;
        const sum = start.criticalPath.reduce((total, { seconds }) => total + seconds, 0);
        expect(sum).toBeCloseTo(start.seconds, 9);
        for (const { spareSeconds = 0 } of start.phases) expect(spareSeconds).toBeGreaterThanOrEqual(0);
      }),
      { numRuns: 500 },
    );
  });

  it('have time to spare: where a phase ends later by that much, the answer does not', () => {
    // Whatever waits begins or ends by no more than the others leave it.
    const start = startUpOf(
      OVERLAPPING.filter(({ replica }) => replica === undefined),
      OVERLAPPING.filter(({ replica }) => replica !== undefined),
      0,
    )!;
    const spare = Object.fromEntries(start.phases.map((each) => [`${each.process} ${each.phase}`, each.spareSeconds]));
    expect(spare).toMatchObject({
      'device process kernels': 0.305,
      'device process weights': 0,
      'command pack': 0.415,
      'command tokenize': 0.415,
      'command plan': 0.125,
    });
  });

  it('are printed with times that add up to the whole', () => {
    fc.assert(
      fc.property(anySpans, (spans) => {
        const devices = spans.filter(({ replica }) => replica !== undefined);
        const start = startUpOf(
          spans.filter(({ replica }) => replica === undefined),
          devices,
          0,
        );
        if (start === undefined) return;
        const scaled = {
          seconds: start.seconds * 37.7,
          criticalPath: start.criticalPath.map((step) => ({
            ...{ ...step, begin: step.begin * 37.7, seconds: step.seconds * 37.7 },
          })),
          phases: [],
        };
        const [, whole, list] = /^first answer after ([\d.]+) s: (.*)$/.exec(printStartUp(scaled))!;
        const times = list!.split(', ').map((each) => Math.round(100 * Number(/ ([\d.]+)$/.exec(each)?.[1] ?? 0)));
        expect(times.reduce((sum, time) => sum + time, 0)).toBe(Math.round(100 * Number(whole)));
      }),
    );
  });
});

describe('the line', () => {
  it('says what was waited for, what moved, and what had time to spare', () => {
    const part = onDevice('read and copy', 300, 750, { isPart: true, bytes: 15 * 2 ** 30 });
    const again = onDevice('read and copy', 700, 760, { isPart: true, bytes: 2 ** 30 });
    const own = OVERLAPPING.filter(({ replica }) => replica === undefined);
    const devices = OVERLAPPING.filter(({ replica }) => replica !== undefined);
    // A single device process says no replica.
    const unnamed = [...devices, part, again].map(({ replica: _, ...rest }): PhaseSpan => rest);
    expect(printStartUp(startUpOf(own, unnamed, 0)!)).toBe(
      'first answer after 1.10 s: process 0.06, device process 0.09, context 0.25, weights 0.49 (16 GiB in 0.46), ' +
        'programs 0.06, first micro-batch 0.14, not accounted 0.01; beside it: open 0.05 (0.13 to spare), ' +
        'plan 0.12 (0.13 to spare), tokenize 0.33 (0.41 to spare), kernels 0.31 (0.30 to spare), ' +
        'pack 0.04 (0.41 to spare)',
    );
  });

  it('names what several processes do', () => {
    const start = startUpOf(
      [span('process', 0, 100), span('first token', 400, 500)],
      [0, 1].flatMap((replica) => [
        span('process', 50, 300 - 100 * replica, { replica }),
        span('weights', 300, 400 + 50 * replica, { replica }),
      ]),
      0,
    )!;
    expect(start.phases.map(({ process, phase, spareSeconds }) => `${process} ${phase} ${spareSeconds}`)).toEqual([
      ...['command process 0', 'device process 1 process undefined', 'device process 0 process 0'],
      ...['device process 0 weights 0', 'device process 1 weights undefined', 'command first token 0'],
    ]);
    expect(printStartUp(start)).toBe(
      'first answer after 0.50 s: process 0.05, device process 0.25, weights 0.10, first token 0.10',
    );
  });
});
