/** The reliability diagram, and the histogram of margins. */
import * as Plot from '@observablehq/plot';
import type { Calibration, Margins } from '../../document/results.js';
import { BELOW, Chart } from '../parts/Chart.js';
import { count, fixed, percent, percents } from '../parts/numbers.js';
import { Table } from '../parts/Table.js';

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
