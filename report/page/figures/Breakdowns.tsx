/** Accuracy by length of the context, or by category. */
import * as Plot from '@observablehq/plot';
import { useState } from 'preact/hooks';
import { namedRows } from '../../document/namedRows.js';
import type { Breakdown, Slice } from '../../document/results.js';
import { BELOW, Chart } from '../parts/Chart.js';
import { Choose } from '../parts/Choose.js';
import { count, counted, fixed, percent, percents } from '../parts/numbers.js';
import { Table } from '../parts/Table.js';
import { Name } from '../parts/Text.js';

const MAX_DRAWN = 40;
const ROW = 20;

interface Point {
  readonly label: string;
  readonly value: number;
  readonly from: number;
  readonly to: number;
  readonly questions: number;
}

const pointsOf = (slices: readonly Slice[], metric: number): Point[] =>
  slices.map(({ label, questions, shares, intervals }) => ({
    label,
    questions,
    value: shares[metric]!,
    from: intervals[metric]![0],
    to: intervals[metric]![1],
  }));

const tip = ({ label, value, from, to, questions }: Point): string =>
  `${label}\n${percent(value)} (${percents([from, to])})\n${counted(questions, 'question')}`;

function lengthOptions(points: readonly Point[], width: number): Plot.PlotOptions {
  const isNarrow = width < 90 * points.length;
  return {
    height: isNarrow ? 280 : 240,
    ...(isNarrow ? { marginBottom: 84 } : {}),
    marginLeft: 46,
    x: {
      ...BELOW,
      type: 'point',
      domain: points.map(({ label }) => label),
      label: 'Characters of the context',
      ...(isNarrow ? { tickRotate: -50, labelOffset: 78 } : {}),
    },
    y: { percent: true, grid: true, label: '% right', nice: true },
    marks: [
      Plot.ruleX(points, { x: 'label', y1: 'from', y2: 'to', stroke: 'var(--accent)', strokeWidth: 2 }),
      Plot.dot(points, { x: 'label', y: 'value', r: 4, fill: 'var(--accent)', channels: {}, title: tip, tip: true }),
    ],
  };
}

function categoryOptions(points: readonly Point[], width: number): Plot.PlotOptions {
  return {
    height: 46 + ROW * points.length,
    marginBottom: 10,
    x: { percent: true, grid: true, label: '% right', nice: true, axis: 'top' },
    ...namedRows(
      points.map(({ label }) => label),
      width,
      230,
    ),
    marks: [
      Plot.link(points, { y: 'label', x1: 'from', x2: 'to', stroke: 'var(--accent)', strokeWidth: 1.5 }),
      Plot.dot(points, { y: 'label', x: 'value', r: 3.5, fill: 'var(--accent)', title: tip, tip: true }),
    ],
  };
}

function Figures({ of, rows }: { readonly of: Breakdown; readonly rows: readonly Slice[] }) {
  return (
    <Table
      caption={`Accuracy by ${of.by}`}
      hidesCaption
      columns={[
        { title: of.kind === 'length' ? 'Characters' : of.by },
        { title: 'Questions', isRight: true },
        ...of.metrics.flatMap((metric) => [
          { title: metric, isRight: true },
          { title: `95 % (${metric})`, isRight: true },
        ]),
      ]}
      rows={rows.map(({ label, questions, shares, intervals }) => [
        <Name text={label} />,
        count(questions),
        ...shares.flatMap((share, i) => [percent(share), percents(intervals[i]!)]),
      ])}
    />
  );
}

const ORDERS = [
  { value: 'questions', title: 'most questions' },
  { value: 'best', title: 'best first' },
  { value: 'worst', title: 'worst first' },
] as const;
type Order = (typeof ORDERS)[number]['value'];

function sorted(slices: readonly Slice[], metric: number, order: Order): readonly Slice[] {
  if (order === 'questions') return slices;
  const sign = order === 'best' ? -1 : 1;
  return slices.slice().sort((a, b) => sign * (a.shares[metric]! - b.shares[metric]!));
}

/** Of a task: a chart for each property of its questions. */
export function Breakdowns({ all }: { readonly all: readonly Breakdown[] }) {
  const [chosen, setChosen] = useState('');
  const [metric, setMetric] = useState('');
  const [order, setOrder] = useState<Order>('questions');
  const of = all.find(({ by, kind }) => `${kind} ${by}` === chosen) ?? all[0];
  if (of === undefined) return null;
  const place = Math.max(0, of.metrics.indexOf(metric));
  const isOfLength = of.kind === 'length';
  const slices = isOfLength ? of.slices : sorted(of.slices, place, order);
  const points = pointsOf(slices, place).slice(0, MAX_DRAWN);
  const shares = points.map(({ value }) => value);
  const left = [
    ...(points.length < of.slices.length ? [`${count(of.slices.length - points.length)} more are in the table`] : []),
    ...(of.left.slices > 0
      ? [`${counted(of.left.slices, 'kind')} of ${counted(of.left.questions, 'question')} are not on this page`]
      : []),
  ];
  return (
    <section>
      <h3>Accuracy by kind of question</h3>
      <div class="controls">
        <Choose
          label="By"
          value={`${of.kind} ${of.by}`}
          options={all.map(({ by, kind }) => ({
            value: `${kind} ${by}`,
            title: kind === 'length' ? 'length of the context' : by,
          }))}
          onChange={setChosen}
        />
        <Choose
          label="Metric"
          value={of.metrics[place]!}
          options={of.metrics.map((each) => ({ value: each, title: each }))}
          onChange={setMetric}
        />
        {!isOfLength && <Choose label="Order" value={order} options={ORDERS} onChange={setOrder} />}
      </div>
      <Chart
        title={isOfLength ? 'Accuracy by length of the context' : `Accuracy by ${of.by}`}
        summary={
          `From ${fixed(100 * Math.min(...shares), 1)} to ${fixed(100 * Math.max(...shares), 1)} % of ` +
          `${of.metrics[place]!}, with 95 % intervals` +
          `${left.map((each) => `; ${each}`).join('')}.`
        }
        inputs={[of, place, order]}
        options={(width) => (isOfLength ? lengthOptions(points, width) : categoryOptions(points, width))}
      >
        <Figures of={of} rows={slices} />
      </Chart>
    </section>
  );
}
