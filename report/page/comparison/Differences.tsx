/** Differences of metrics: a chart of intervals, and a table with the tests. */
import * as Plot from '@observablehq/plot';
import { namedRows } from '../../document/namedRows.js';
import type { MetricRow, RunComparison } from '../../document/comparison.js';
import { BELOW, Chart } from '../parts/Chart.js';
import { count, counted, fixed, percent, signed } from '../parts/numbers.js';
import { Table } from '../parts/Table.js';
import { Name } from '../parts/Text.js';

export interface DifferencesProps {
  readonly comparison: RunComparison;
  readonly names: readonly [string, string];
}

const MAX_DRAWN = 60;
const ROW = 26;

/** Differences of shares are shown in points, which are hundredths. */
const isShare = ({ lost }: MetricRow): boolean => lost !== null;
const scaled = (row: MetricRow, value: number): number => (isShare(row) ? 100 * value : value);
const shown = (row: MetricRow, value: number): string => (isShare(row) ? percent(value) : fixed(value, 4));
const difference = (row: MetricRow, value: number): string => signed(scaled(row, value), isShare(row) ? 2 : 4);

/** `0.12`, `0.0004`, `< 0.0001` */
const shownP = (p: number): string => (p < 0.0001 ? '< 0.0001' : p < 0.01 ? p.toFixed(4) : p.toFixed(2));

function IntervalChart({ comparison, names }: DifferencesProps) {
  const rows = comparison.metrics.filter((row) => isShare(row) && row.interval !== null);
  if (rows.length === 0) return null;
  const all = rows.map((row) => ({
    name: `${row.name}, ${row.metric}`,
    difference: scaled(row, row.difference),
    from: scaled(row, row.interval![0]),
    to: scaled(row, row.interval![1]),
  }));
  const bars = all.slice(0, MAX_DRAWN);
  const apart = all.filter(({ from, to }) => from > 0 || to < 0);
  return (
    <Chart
      title="Differences with 95 % intervals"
      summary={
        `Points of ${names[1]} less ${names[0]}. ` +
        `${count(apart.length)} of ${counted(all.length, 'interval')} ${apart.length === 1 ? 'is' : 'are'} off 0` +
        (bars.length < all.length ? `; the first ${count(bars.length)} are drawn.` : '.')
      }
      inputs={[comparison]}
      options={(width) => ({
        height: 64 + ROW * bars.length,
        ...namedRows(
          bars.map(({ name }) => name),
          width,
          300,
        ),
        x: { ...BELOW, label: 'Points', grid: true, nice: true },
        marks: [
          Plot.ruleX([0], { stroke: 'currentColor' }),
          Plot.link(bars, { y: 'name', x1: 'from', x2: 'to', stroke: 'var(--accent)', strokeWidth: 2 }),
          Plot.dot(bars, {
            y: 'name',
            x: 'difference',
            r: 4,
            fill: 'var(--accent)',
            tip: true,
            title: (bar: (typeof bars)[number]) =>
              `${bar.name}\n${signed(bar.difference, 2)} points (${signed(bar.from, 2)} to ${signed(bar.to, 2)})`,
          }),
        ],
      })}
    />
  );
}

export function Differences({ comparison, names }: DifferencesProps) {
  if (comparison.metrics.length === 0) return null;
  return (
    <section>
      <h3>Metrics</h3>
      <IntervalChart comparison={comparison} names={names} />
      <Table
        caption="Metrics on the common questions"
        columns={[
          { title: 'Task' },
          { title: 'Metric' },
          { title: 'First', isRight: true },
          { title: 'Other', isRight: true },
          { title: 'Difference', isRight: true },
          { title: '95 %', isRight: true },
          { title: 'p', isRight: true },
          { title: 'Test' },
          { title: 'Right → wrong', isRight: true },
          { title: 'Wrong → right', isRight: true },
        ]}
        rows={comparison.metrics.map((row) => [
          <Name text={row.name} />,
          <Name text={row.metric} />,
          shown(row, row.first),
          shown(row, row.other),
          <strong>{difference(row, row.difference)}</strong>,
          row.interval === null ? '–' : `${difference(row, row.interval[0])} to ${difference(row, row.interval[1])}`,
          row.p === null ? '–' : shownP(row.p),
          row.test ?? '–',
          row.lost === null ? '–' : count(row.lost),
          row.gained === null ? '–' : count(row.gained),
        ])}
      />
      <p class="none">
        Differences of shares are in points. p says how often chance alone would make a difference as large.
      </p>
    </section>
  );
}
