/** Differences of metrics: a chart of intervals, and a table with the tests. */
import * as Plot from '@observablehq/plot';
import type { MetricRow, RunComparison } from '../../document/comparison.js';
import { namedRows, withoutMiddle } from '../../document/namedRows.js';
import type { QuestionsDocument } from '../../document/questions.js';
import { BELOW, Chart } from '../parts/Chart.js';
import { Name, Table } from '../parts/Elements.js';
import { Section } from '../parts/Frame.js';
import { count, counted, fixed, percent, signed } from '../parts/numbers.js';
import { nameOf } from './select.js';

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
        (bars.length < all.length ? `; the first ${count(bars.length)} are drawn.` : '../comparison')
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

/** Margins of questions in two runs: what lies off the diagonal moved; what crossed an axis flipped. */

/** More dots are no more to see, and slower to draw: those that moved least are thinned. */
const MAX_DOTS = 4000;

interface Dot {
  readonly row: number;
  readonly first: number;
  readonly other: number;
  readonly isFlipped: boolean;
}

function dotsOf({ answers }: QuestionsDocument, first: number, other: number): Dot[] {
  const [a, b] = [answers[first]!.margins, answers[other]!.margins];
  return a.flatMap((margin, row) => {
    const beside = b[row];
    if (typeof margin !== 'number' || typeof beside !== 'number') return [];
    return [{ row, first: margin, other: beside, isFlipped: margin > 0 !== beside > 0 }];
  });
}

/** All that flipped, and of the others every so many. */
function thinned(dots: readonly Dot[]): readonly Dot[] {
  if (dots.length <= MAX_DOTS) return dots;
  const flipped = dots.filter(({ isFlipped }) => isFlipped).slice(0, MAX_DOTS / 2);
  const others = dots.filter(({ isFlipped }) => !isFlipped);
  const step = others.length / (MAX_DOTS - flipped.length);
  return [...Array.from({ length: MAX_DOTS - flipped.length }, (_, i) => others[Math.floor(i * step)]!), ...flipped];
}

export interface MarginScatterProps {
  readonly comparison: RunComparison;
  readonly names: readonly [string, string];
}

function Scatter({ document, comparison, names }: MarginScatterProps & { readonly document: QuestionsDocument }) {
  const dots = dotsOf(document, comparison.first, comparison.other);
  if (dots.length === 0) return null;
  const drawn = thinned(dots);
  const moved = dots.map(({ first, other }) => Math.abs(other - first)).sort((a, b) => a - b);
  const flipped = dots.filter(({ isFlipped }) => isFlipped).length;
  return (
    <section>
      <h3>Margins</h3>
      <Chart
        title="Margin of the right choice in both runs, in nats"
        summary={
          `${counted(dots.length, 'question')}; the median one moved by ${fixed(moved[moved.length >> 1]!, 4)} nats, ` +
          `the most by ${fixed(moved.at(-1)!, 4)}. ${count(flipped)} crossed 0 (crosses).` +
          (drawn.length < dots.length ? ` ${count(drawn.length)} are drawn.` : '')
        }
        inputs={[document, comparison]}
        options={(width) => ({
          height: Math.min(560, Math.max(320, width * 0.6)),
          marginLeft: 56,
          grid: true,
          x: { ...BELOW, label: withoutMiddle(names[0], Math.floor(width / 9)), nice: true },
          y: { label: withoutMiddle(names[1], Math.floor(width / 9)), nice: true },
          marks: [
            Plot.ruleX([0], { stroke: 'var(--faint)' }),
            Plot.ruleY([0], { stroke: 'var(--faint)' }),
            Plot.dot(drawn, {
              x: 'first',
              y: 'other',
              filter: ({ isFlipped }: Dot) => !isFlipped,
              r: 2,
              fill: 'var(--right)',
              fillOpacity: 0.45,
            }),
            Plot.dot(drawn, {
              x: 'first',
              y: 'other',
              filter: ({ isFlipped }: Dot) => isFlipped,
              symbol: 'times',
              r: 4,
              stroke: 'var(--wrong)',
              strokeWidth: 1.5,
            }),
            Plot.tip(
              drawn,
              Plot.pointer({
                x: 'first',
                y: 'other',
                title: ({ row, first, other }: Dot) =>
                  `question ${nameOf(document, row).replace(' ', ' of ')}\n${fixed(first, 4)} → ${fixed(other, 4)}`,
              }),
            ),
          ],
        })}
      />
    </section>
  );
}

export const MarginScatter = (props: MarginScatterProps) => (
  <Section name="questions">{(document) => <Scatter {...props} document={document} />}</Section>
);
