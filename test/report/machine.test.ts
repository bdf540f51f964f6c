/** Traces as data of a page: figures equal those of the file, and hostile files do no harm. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import { collectTraces } from '../../report/collect/trace.js';
import { drawnOf, moved, secondsIn, zoomed } from '../../report/document/machine.js';
import { madeStart, madeTrace } from '../support/traces.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-traces-'));
afterAll(() => rmSync(root, { recursive: true }));
let files = 0;
const file = (content: unknown): string => {
  const path = join(root, `t${files++}.json`);
  writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content));
  return path;
};
const viewOf = (content: unknown) => collectTraces([file(content)]).document.traces[0]!;
const slice = (more: object): object => ({
  name: 'a',
  cat: 'compute',
  ph: 'X',
  ts: 0,
  dur: 1,
  pid: 1,
  tid: 1,
  ...more,
});

describe('a trace', () => {
  const made = madeTrace({ devices: 4, stages: 2, layers: 60, batches: 50 });
  const events = made.traceEvents.filter(({ ph }) => ph === 'X');
  const view = viewOf(made);
  const sumOf = (cat: string, pid: number, of: string): number =>
    events
      .filter((event) => event['cat'] === cat && event['pid'] === pid)
      .reduce(
        (sum, event) => sum + Number(of === 'dur' ? event['dur'] : (event['args'] as Record<string, number>)[of]),
        0,
      );

  it('gives the figures of its devices', () => {
    expect(view.devices.map(({ process }) => process)).toEqual(['device 0', 'device 1', 'device 2', 'device 3']);
    for (const [i, device] of view.devices.entries()) {
      expect(device).toMatchObject({ slices: 50, tokens: sumOf('compute', i + 1, 'tokens') });
      expect(device.computeSeconds).toBeCloseTo(sumOf('compute', i + 1, 'dur') / 1e6, 4);
      expect(device.flops).toBeCloseTo(sumOf('compute', i + 1, 'flops'), -3);
    }
    expect(view.devices[0]!.copySeconds).toBeCloseTo((50 * 4200) / 1e6, 6);
  });

  it('gives those of its kernels, layers together, the longest first', () => {
    expect(view.kernels[0]).toMatchObject({ path: 'layers.*.ffn.gate_up', anchor: 'gemm', launches: 180 });
    const all = view.kernels.reduce((sum, { seconds }) => sum + seconds, 0);
    expect(all).toBeCloseTo(sumOf('kernel', 5, 'dur') / 1e6, 5);
    const mix = view.kernels.find(({ path }) => path.endsWith('attention.mix'))!;
    expect(mix.flops).toBeCloseTo(180 * 1.2e11, -3);
    expect(mix.shareOfPeak).toBeGreaterThan(0.31);
    expect(view.memory!.launches).toHaveLength(302);
    expect(view.phases.find(({ process, name }) => process === 'command' && name === 'tokenize')).toMatchObject({
      ...{ begin: expect.closeTo(0.61, 6) as number, end: expect.closeTo(3.71, 6) as number },
    });
  });

  it('is shown as far as its slices go where it is of another program, or of an earlier version', () => {
    const { document, notes } = collectTraces([file([slice({ args: { tokens: -1 } }), { ph: 'C', name: 'counter' }])]);
    expect(document.traces[0]!.tracks).toMatchObject([{ process: 'process 1', kind: 'compute', figures: {} }]);
    expect(document.traces[0]!.peaks).toBeUndefined();
    expect(notes.join()).toContain('says nothing of peaks and memory');
  });

  it('says what the first answer waited for, if it can be read', () => {
    const saying = (start: unknown): unknown => ({
      ...made,
      otherData: { tilewright: { ...(made.otherData as { tilewright: object }).tilewright, start } },
    });
    const start = madeStart();
    expect([view.start, viewOf(saying(start)).start]).toEqual([undefined, start]);
    // The rest is shown all the same.
    const bad = viewOf(saying({ ...start, seconds: null }));
    expect([bad.start, bad.about?.model]).toEqual([undefined, 'made-70b']);
    const critical = slice({ cat: 'critical', name: 'weights' });
    expect(viewOf({ traceEvents: [slice({}), critical] }).tracks.map(({ kind }) => kind)).toEqual([
      ...['compute', 'critical'],
    ]);
  });

  it('leaves out what is no slice, and cuts long names', () => {
    const bad = [slice({ ts: 'soon' }), slice({ dur: -1 }), slice({ ts: 1e300 }), slice({ name: 7 }), 5, null];
    const path = file({ traceEvents: [...bad, slice({ name: `</script>\u202e${'x'.repeat(10_000)}` })] });
    const { document, notes } = collectTraces([path]);
    expect(notes[0]).toBe(`${path}: 6 events left out: not a slice with a name and a time`);
    expect(document.traces[0]!.names).toEqual([`</script>\u202e${'x'.repeat(190)}`]);
  });

  it('refuses files that are none, with one line', () => {
    const deep = `{"traceEvents":${'['.repeat(10_000)}`;
    for (const [content, message] of [
      ['{"traceEvents":[]}', 'the trace has no slices'],
      ['{"results":{}}', 'is no trace: it has no traceEvents'],
      ['{"traceEvents":[{', 'not valid JSON'],
      [deep, 'nested more than 200 deep'],
      [`[${'1,'.repeat(400_001)}1]`, 'more than a page can show'],
    ] as const)
      try {
        collectTraces([file(content)]);
        expect.unreachable(message);
      } catch (error) {
        expect(error).toBeInstanceOf(UserError);
        expect((error as Error).message).toContain(message);
        expect((error as Error).message).not.toContain('\n');
      }
    const facts = { format: 1, version: 'x', peaks: 'high' };
    const { document, notes } = collectTraces([file({ otherData: { tilewright: facts }, traceEvents: [slice({})] })]);
    expect(document.traces[0]!.about).toBeUndefined();
    expect(notes.join()).toContain('cannot be read, and is left out');
  });
});

describe('a timeline', () => {
  const [track] = viewOf({
    traceEvents: Array.from({ length: 10_000 }, (_, i) => slice({ name: `${i % 7}`, ts: 10 * i, dur: 9 })),
  }).tracks;

  it('draws few rectangles of many slices, and none of their time is lost', () => {
    const all = drawnOf(track!, { from: 0, to: 100_000 }, 500);
    expect(all.length).toBeLessThan(20);
    expect(all.reduce((sum, { slices }) => sum + slices, 0)).toBe(10_000);
    expect(all.reduce((sum, { begin, end, busy }) => sum + busy * (end - begin), 0)).toBeCloseTo(90_000, 3);
    const near = drawnOf(track!, { from: 50_000, to: 50_100 }, 500);
    expect(near.map(({ begin, slices }) => [begin, slices])).toEqual(
      Array.from({ length: 11 }, (_, i) => [50_000 + 10 * i, 1]),
    );
  });

  it('counts what is in view', () => {
    expect(secondsIn(track!, { from: 0, to: 100_000 })).toBeCloseTo(0.09, 9);
    expect(secondsIn(track!, { from: 55, to: 65 })).toBeCloseTo(9e-6, 12);
  });

  it('stays within the whole as it is moved and zoomed', () => {
    const whole = { from: 0, to: 1000 };
    expect(moved({ from: 100, to: 200 }, -500, whole)).toEqual({ from: 0, to: 100 });
    expect(moved({ from: 100, to: 200 }, 5000, whole)).toEqual({ from: 900, to: 1000 });
    expect(zoomed({ from: 100, to: 300 }, 0.5, 100, whole)).toEqual({ from: 100, to: 200 });
    expect(zoomed({ from: 100, to: 300 }, 99, 200, whole)).toEqual(whole);
  });
});
