/** The tuner's table as users see it. */
import { scoringBucket } from '../../ir/scoring.js';
import { describe, expect, it } from 'vitest';
import type { TuneProgress, TuneRow } from '../../autotune/search.js';
import type { CpuSchedule } from '../../ir/plan.js';
import { changeLine, formatSeconds, LiveTable, renderTable, statusLine } from '../../autotune/table.js';

const row = (change: Partial<TuneRow<CpuSchedule>>): TuneRow<CpuSchedule> => ({
  kernel: 'layers.0.ffn.down',
  signature: 'ab',
  count: 1,
  bucket: scoringBucket({ tokens: 256, rows: 128, longest: 100 }),
  schedule: { kind: 'loop', isa: 'avx512', rows: 4 },
  trials: 0,
  reused: 0,
  failures: 0,
  isDone: false,
  ...change,
});
const ROWS = [
  row({
    count: 21,
    trials: 12,
    reused: 3,
    bestSeconds: 0.001234,
    defaultSeconds: 0.00185,
    gflops: 100,
    shareOfPeak: 0.537,
  }),
  row({ kernel: 'head', trials: 2, failures: 1, bestSeconds: 43.1e-6 }),
  row({ kernel: 'prepare' }),
];
const progress = (
  rows: readonly TuneRow<CpuSchedule>[],
  changed: number,
  elapsedSeconds = 41.2,
): TuneProgress<CpuSchedule> => ({
  rows,
  changed,
  elapsedSeconds,
  budgetSeconds: 60,
});

describe('renderTable', () => {
  it('aligns kernel, bucket, trials, best, share of peak and gain', () => {
    expect(renderTable(ROWS).join('\n')).toMatchInlineSnapshot(`
      "kernel                  bucket     trials     best  share of peak   gain
      layers.0.ffn.down ×21  256/128         15  1.23 ms           54 %  1.50×
      head                   256/128  2 (1 bad)  43.1 µs              –      –
      prepare                256/128          0        –              –      –"
    `);
  });

  it('fits narrow terminals by shortening names in the middle', () => {
    const lines = renderTable([row({ kernel: 'a.very.long.path.of.a.kernel.that.does.not.fit.anywhere' })], 60);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(60);
    expect(lines[1]).toMatch(/^a\.very\S*…\S*where /);
  });
});

describe('formatSeconds', () => {
  it('chooses the unit', () => {
    expect([5e-9, 812e-9, 43.1e-6, 3.02e-3, 1.25].map(formatSeconds)).toEqual([
      '5.00 ns',
      '812 ns',
      '43.1 µs',
      '3.02 ms',
      '1.25 s',
    ]);
  });
});

describe('LiveTable', () => {
  const collect = (isTerminal: boolean, clock: { t: number }) => {
    const written: string[] = [];
    return {
      written,
      table: new LiveTable({
        write: (text) => written.push(text),
        isTerminal,
        width: 80,
        height: 10,
        intervalSeconds: 0.2,
        now: () => clock.t,
      }),
    };
  };

  it('writes one plain line each time a best changes, and a summary', () => {
    const { written, table } = collect(false, { t: 0 });
    table.update(progress(ROWS, 0));
    table.update(progress(ROWS, 0));
    table.update(progress(ROWS, 2));
    table.update(progress([row({ ...ROWS[0]!, bestSeconds: 0.001 }), ...ROWS.slice(1)], 0));
    table.finish();
    expect(written).toEqual([
      `${changeLine(progress(ROWS, 0))}\n`,
      expect.stringContaining('best 1.00 ms'),
      `${statusLine(progress(ROWS, 0))}\n`,
    ]);
    expect(written[0]).toBe(
      'tune layers.0.ffn.down ×21, bucket 256/128, trials 15, best 1.23 ms, share of peak 54 %, gain 1.50×\n',
    );
    expect(written.join('')).not.toContain('\u001b');
    expect(statusLine(progress(ROWS, 0))).toBe('measured 2 of 3, 14 trials, 0:41 of 1:00');
    expect(statusLine({ ...progress(ROWS, 0), final: scoringBucket({ tokens: 8448, rows: 8448, longest: 256 }) })).toBe(
      'measured 2 of 3, 14 trials, 0:41 of 1:00, final of 8,448 tokens',
    );
  });

  it('redraws in place on a terminal, at most at the given interval, and shows the end whole', () => {
    const clock = { t: 0 };
    const { written, table } = collect(true, clock);
    const many = Array.from({ length: 30 }, (_, i) => row({ kernel: `kernel${i}` }));
    table.update(progress(many, 20));
    clock.t = 0.1;
    table.update(progress(many, 21));
    expect(written).toHaveLength(1);
    const lines = written[0]!.trimEnd().split('\n');
    expect(lines.length).toBeLessThanOrEqual(10);
    expect(written[0]).toContain('kernel20 ');
    clock.t = 0.3;
    table.update(progress(many, 22));
    expect(written[1]).toMatch(new RegExp(`^\\u001b\\[${lines.length}A\\r\\u001b\\[J`));
    table.finish();
    expect(written.at(-1)!.trimEnd().split('\n')).toHaveLength(32);
  });

  it('prints nothing without progress', () => {
    const { written, table } = collect(true, { t: 0 });
    table.finish();
    expect(written).toEqual([]);
  });
});

describe('a share of peak', () => {
  const share = (rows: readonly TuneRow<CpuSchedule>[]): readonly string[] => renderTable(rows);

  it('is never above 100 %: a kernel that outran the measured peak defines the peak', () => {
    const lines = share([
      row({ kernel: 'fast', gflops: 500, bestSeconds: 1, defaultSeconds: 1, shareOfPeak: 1.25 }),
      row({ kernel: 'half', gflops: 250, bestSeconds: 1, defaultSeconds: 1, shareOfPeak: 0.625 }),
    ]);
    expect(lines[1]).toMatch(/^fast .* 100 %/);
    expect(lines[2]).toMatch(/^half .* 50 %/);
    expect(lines[3]).toContain('outran the loop');
    expect(lines).toHaveLength(4);
  });

  it('of memory is not shown if the data stayed in caches', () => {
    const lines = share([
      row({ kernel: 'norm', gflops: 0, bestSeconds: 1, defaultSeconds: 1, shareOfPeak: 3 }),
      row({ kernel: 'copy', gflops: 0, bestSeconds: 1, defaultSeconds: 1, shareOfPeak: 0.9 }),
    ]);
    expect(lines[1]).toMatch(/^norm .* cached/);
    expect(lines[2]).toMatch(/^copy .* 90 %/);
    expect(lines[3]).toContain('faster than memory');
  });
});
