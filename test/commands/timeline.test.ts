import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { CallWork } from '../../commands/callWork.js';
import { type BatchSpan, startupEvents, Timeline, timelineEvents, united } from '../../commands/traceEvents.js';
import type { PhaseSpan } from '../../driver/phases.js';
import type { DeviceSpan } from '../../runtime/call.js';

const batch = (tokens: number): { tokens: Int32Array; row: Int32Array } => ({
  tokens: new Int32Array(tokens),
  row: new Int32Array(1),
});
const span = (device: number, begin: number, end: number, kind: DeviceSpan['kind'] = 'compute'): DeviceSpan => ({
  device,
  kind,
  begin,
  end,
});

/** Two stages, in milliseconds from 1,000. The second waits for the first, which sends its results meanwhile. */
function pipeline(): Timeline {
  const timeline = new Timeline();
  timeline.add(0, batch(7), [span(0, 1000, 1010), span(0, 1010, 1012, 'copy'), span(1, 1012, 1020)]);
  timeline.add(1, batch(9), [span(0, 1010, 1018), span(0, 1018, 1020, 'copy'), span(1, 1020, 1030)]);
  return timeline;
}

describe('the timeline of a run', () => {
  it('shows how busy each device was, from the first start to the last end of any device', () => {
    const use = pipeline().use(3)!;
    expect(use.map(({ device }) => device)).toEqual([0, 1, 2]);
    expect(use[0]).toEqual({ device: 0, computeSeconds: 0.018, copySeconds: 0.004, busyShare: 18 / 30 });
    expect(use[1]).toEqual({ device: 1, computeSeconds: 0.018, copySeconds: 0, busyShare: 18 / 30 });
    expect(use[2]).toEqual({ device: 2, computeSeconds: 0, copySeconds: 0, busyShare: 0 });
  });

  it('has nothing to show for devices that report nothing', () => {
    const timeline = new Timeline();
    timeline.add(0, batch(3));
    expect([
      timeline.use(2),
      timeline.window,
      timeline.gaps(0),
      timelineEvents(timeline, 2).filter(({ ph }) => ph === 'X'),
    ]).toEqual([undefined, undefined, [], []]);
  });

  it('counts no moment twice, and the rest are gaps (random spans)', () => {
    const spans = fc.array(
      fc.tuple(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 300 }), fc.integer({ min: 1, max: 60 })),
      { minLength: 1, maxLength: 30 },
    );
    fc.assert(
      fc.property(spans, (list) => {
        const timeline = new Timeline();
        list.forEach(([device, begin, length], i) => timeline.add(i, batch(1), [span(device, begin, begin + length)]));
        const window = timeline.window!;
        for (const { device, busyShare } of timeline.use(4)!) {
          let busy = 0;
          for (let at = window.begin; at < window.end; at++)
            busy += list.some(([who, begin, length]) => who === device && begin <= at && at < begin + length) ? 1 : 0;
          expect(busyShare).toBeCloseTo(busy / (window.end - window.begin), 10);
          const idle = timeline.gaps(device).reduce((sum, { begin, end }) => sum + end - begin, 0);
          expect(idle + busy).toBe(window.end - window.begin);
          expect(united([...timeline.gaps(device), ...timeline.of(device, 'compute')])).toEqual([window]);
        }
      }),
    );
  });

  it('becomes one process for each device, with tracks for compute, copies and gaps', () => {
    const events = timelineEvents(pipeline(), 2);
    const names = events.flatMap((event) => (event.name === 'process_name' ? [event.args['name']] : []));
    expect(names).toEqual(['device 0', 'device 1']);
    const slices = (pid: number, cat: string): (readonly [string, number, number])[] =>
      events.flatMap((event) =>
        event.ph === 'X' && event.pid === pid && event.cat === cat ? [[event.name, event.ts, event.dur] as const] : [],
      );
    expect(slices(1, 'compute')).toEqual([
      ['micro-batch 0', 0, 10_000],
      ['micro-batch 1', 10_000, 8000],
    ]);
    expect(slices(1, 'copy')).toEqual([
      ['micro-batch 0', 10_000, 2000],
      ['micro-batch 1', 18_000, 2000],
    ]);
    expect(slices(1, 'idle')).toEqual([['idle', 18_000, 12_000]]);
    expect(slices(2, 'compute')).toEqual([
      ['micro-batch 0', 12_000, 8000],
      ['micro-batch 1', 20_000, 10_000],
    ]);
    expect(slices(2, 'idle')).toEqual([['idle', 0, 12_000]]);
    const tracks = new Set(events.flatMap((event) => (event.ph === 'X' ? [`${event.cat} ${event.tid}`] : [])));
    expect([...tracks].sort()).toEqual(['compute 1', 'copy 2', 'idle 3']);
    expect(events.find((event) => event.ph === 'X' && event.cat === 'compute')?.args).toEqual({ tokens: 7, rows: 1 });
  });

  it('says what each micro-batch computed and moved, and how near to the roofline it came', () => {
    const workOf = ({ tokens }: BatchSpan): CallWork => ({ flops: tokens * 100, bytes: tokens, minSeconds: 0.004 });
    const [first] = timelineEvents(pipeline(), 2, { workOf }).filter((event) => event.ph === 'X');
    expect(first?.args).toEqual({ tokens: 7, rows: 1, flops: 700, bytes: 7, shareOfPeak: 0.4 });
  });

  it('joins neighbours of a long run, and nothing is lost', () => {
    const timeline = new Timeline();
    for (let i = 0; i < 1000; i++) timeline.add(i, batch(3), [span(i % 2, 10 * i, 10 * i + 5)]);
    const events = timelineEvents(timeline, 2, { origin: 0, maxSlices: 100 });
    const slices = events.filter((event) => event.ph === 'X');
    expect(slices).toHaveLength(100);
    expect(slices.reduce((sum, { args }) => sum + Number(args['tokens']), 0)).toBe(3000);
    expect(slices.reduce((sum, { args }) => sum + Number(args['busySeconds']), 0)).toBeCloseTo(5, 9);
    expect(slices[0]).toMatchObject({ name: 'micro-batches 0–18', ts: 0, dur: 185_000, args: { batches: 10 } });
  });

  it('shows how the command and its devices started; what overlaps is on tracks of its own', () => {
    const phase = (name: string, begin: number, end: number, more: Partial<PhaseSpan> = {}): PhaseSpan => ({
      ...{ name, begin, end },
      ...more,
    });
    const spans = [
      phase('open', 100, 110),
      phase('tokenize', 105, 130),
      phase('weights', 110, 120),
      phase('weights', 108, 140, { replica: 1 }),
      phase('read and pack w', 111, 112, { replica: 1, isPart: true, bytes: 77 }),
    ];
    const events = startupEvents(spans, { origin: 100, pid: 5, stages: 2 });
    const slices = events.flatMap((event) =>
      event.ph === 'X' && event.cat === 'startup'
        ? [[event.name, event.pid, event.tid, event.ts, event.dur, event.args['bytes']]]
        : [],
    );
    // The first track is that of the critical path.
    expect(slices).toEqual([
      ['open', 5, 2, 0, 10_000, undefined],
      ['weights', 5, 2, 10_000, 10_000, undefined],
      ['tokenize', 5, 3, 5000, 25_000, undefined],
      // The second replica's first device, behind its own tracks.
      ['weights', 3, 4, 8000, 32_000, undefined],
      ['read and pack w', 3, 5, 11_000, 1000, 77],
    ]);
  });

  it('marks what the first answer waited for, as a track and by arrows between the phases of all processes', () => {
    const spans: readonly PhaseSpan[] = [
      ...[
        { name: 'process', begin: 100, end: 150 },
        { name: 'compile', begin: 150, end: 300 },
      ],
      ...[
        { name: 'process', begin: 130, end: 290, replica: 0 },
        { name: 'weights', begin: 300, end: 700, replica: 0 },
      ],
      ...[
        { name: 'tokenize', begin: 150, end: 200 },
        { name: 'first micro-batch', begin: 720, end: 800 },
      ],
    ];
    const events = startupEvents(spans, { origin: 100, pid: 5, stages: 2 });
    const path = events.flatMap((event) => (event.ph === 'X' && event.cat === 'critical' ? [event] : []));
    expect(path.map(({ name, ts, dur, pid, tid }) => [name, ts / 1000, dur / 1000, pid, tid])).toEqual([
      ...[
        ['process', 0, 50, 5, 1],
        ['compile', 50, 150, 5, 1],
        ['weights', 200, 400, 5, 1],
        ['not accounted', 600, 20, 5, 1],
        ['first micro-batch', 620, 80, 5, 1],
      ],
    ]);
    expect(events).toContainEqual({ name: 'thread_name', ph: 'M', pid: 5, tid: 1, args: { name: 'critical path' } });
    // Each end lies within the slice of its phase, on that one's own track.
    const slices = events.flatMap((event) => (event.ph === 'X' && event.cat === 'startup' ? [event] : []));
    const ends = events.flatMap((event) => {
      if (event.ph !== 's' && event.ph !== 'f') return [];
      const around = slices.filter(({ pid, tid }) => pid === event.pid && tid === event.tid);
      const within = around.filter(({ ts, dur }) => ts < event.ts && event.ts < ts + dur);
      return [[event.ph, event.id, ...within.map(({ name, pid }) => `${name} ${pid}`)]];
    });
    expect(ends).toEqual([
      ...[
        ['s', 1, 'process 5'],
        ['f', 1, 'compile 5'],
        ['s', 2, 'compile 5'],
        ['f', 2, 'weights 1'],
        ['s', 3, 'weights 1'],
        ['f', 3, 'first micro-batch 5'],
      ],
    ]);
  });
});
