/** Accuracy by length of the context, or by category. */
import * as Plot from '@observablehq/plot';
import { useState } from 'preact/hooks';
import { namedRows } from '../../document/namedRows.js';
import type { Breakdown, Calibration, Margins, Slice } from '../../document/results.js';
import { BELOW, Chart } from '../parts/Chart.js';
import { Choose, Name, Table } from '../parts/Elements.js';
import { count, counted, fixed, percent, percents } from '../parts/numbers.js';

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

/** The reliability diagram, and the histogram of margins. */

export function Reliability({ of }: { readonly of: Calibration }) {
  const bins = of.bins
    .filter(({ questions }) => questions > 0)
    .map((bin) => ({
      ...bin,
      low: bin.interval[0],
      high: bin.interval[1],
    }));
  const mean = bins.reduce((sum, { questions, confidence }) => sum + questions * confidence, 0) / of.questions;
  const right = bins.reduce((sum, { questions, accuracy }) => sum + questions * accuracy, 0) / of.questions;
  return (
    <Chart
      title="Calibration"
      summary={
        `Expected calibration error ${percent(of.ece)}: the most likely choice has probability ${percent(mean, 1)} ` +
        `on average, and is right in ${percent(right, 1)}. On the line, both are the same.`
      }
      inputs={[of]}
      options={() => ({
        height: 320,
        marginLeft: 46,
        x: { ...BELOW, domain: [0, 100], percent: true, label: 'Probability of the most likely choice, %' },
        y: { domain: [0, 100], percent: true, label: '% right', grid: true },
        r: { range: [2, 11] },
        marks: [
          Plot.link([0], { x1: 0, y1: 0, x2: 1, y2: 1, stroke: 'var(--faint)', strokeDasharray: '4 4' }),
          Plot.link(bins, { x1: 'confidence', x2: 'confidence', y1: 'low', y2: 'high', stroke: 'var(--accent)' }),
          Plot.dot(bins, {
            x: 'confidence',
            y: 'accuracy',
            r: 'questions',
            fill: 'var(--accent)',
            tip: true,
            title: (bin: (typeof bins)[number]) =>
              `${percent(bin.accuracy)} right (${percents(bin.interval)})\n` +
              `at ${percent(bin.confidence)}\n${count(bin.questions)} questions`,
          }),
        ],
      })}
    >
      <Table
        caption="Calibration by probability"
        hidesCaption
        columns={[
          { title: 'Probability' },
          { title: 'Questions', isRight: true },
          { title: 'Mean', isRight: true },
          { title: 'Right', isRight: true },
          { title: '95 %', isRight: true },
        ]}
        rows={bins.map(({ from, to, questions, confidence, accuracy, interval }) => [
          percents([from, to], 0),
          count(questions),
          percent(confidence),
          percent(accuracy),
          percents(interval),
        ])}
      />
    </Chart>
  );
}

const SIDES = [
  { word: 'wrong', side: -1 },
  { word: 'right', side: 1 },
];

export function MarginHistogram({ of }: { readonly of: Margins }) {
  const digits = Math.max(0, Math.ceil(-Math.log10(of.bins[0]!.to - of.bins[0]!.from)));
  return (
    <Chart
      title="Margins of the right choice"
      summary={
        `Nats by which the right choice exceeds the best other one: ${fixed(of.median, 2)} in the median; ` +
        `${count(of.close)} of ${count(of.questions)} questions are closer than half a nat. ` +
        'Left of 0 the answer is wrong.'
      }
      inputs={[of]}
      options={() => ({
        height: 320,
        marginLeft: 52,
        marginTop: 34,
        x: { ...BELOW, label: 'Nats' },
        y: { label: 'Questions', grid: true },
        marks: [
          Plot.rectY(of.bins, {
            x1: 'from',
            x2: 'to',
            y: 'questions',
            tip: true,
            fill: ({ from }: { from: number }) => (from < 0 ? 'var(--wrong)' : 'var(--right)'),
            title: ({ from, to, questions }: Margins['bins'][number]) =>
              `${fixed(from, digits)} to ${fixed(to, digits)} nats\n${count(questions)} questions`,
          }),
          Plot.ruleY([0]),
          Plot.ruleX([0], { stroke: 'currentColor' }),
          Plot.text(SIDES, {
            x: () => 0,
            text: 'word',
            textAnchor: 'start',
            frameAnchor: 'top',
            dx: 6,
            dy: -14,
            fill: 'currentColor',
            filter: ({ side }: (typeof SIDES)[number]) => side > 0,
          }),
          Plot.text(SIDES, {
            x: () => 0,
            text: 'word',
            textAnchor: 'end',
            frameAnchor: 'top',
            dx: -6,
            dy: -14,
            fill: 'currentColor',
            filter: ({ side }: (typeof SIDES)[number]) => side < 0,
          }),
        ],
      })}
    >
      <Table
        caption="Questions by margin"
        hidesCaption
        columns={[{ title: 'Nats' }, { title: 'Questions', isRight: true }]}
        rows={of.bins.map(({ from, to, questions }, i) => [
          i === 0
            ? `below ${fixed(to, digits)}`
            : i === of.bins.length - 1
              ? `from ${fixed(from, digits)}`
              : `${fixed(from, digits)} to ${fixed(to, digits)}`,
          count(questions),
        ])}
      />
    </Chart>
  );
}
