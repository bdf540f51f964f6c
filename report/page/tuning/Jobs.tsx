/** What tuning gained, per kernel and bucket, against the default schedule and the vendor's library. */
import * as Plot from '@observablehq/plot';
import { namedRows } from '../../document/namedRows.js';
import { gainOf, type TuningJob, type TuningMachine, weightOf } from '../../document/tuning.js';
import { Chart } from '../parts/Chart.js';
import { count, fixed } from '../parts/numbers.js';
import { aboveNote, type OfPeak, peakText } from '../parts/peak.js';
import { Table } from '../parts/Table.js';
import { Name, Shown, visible } from '../parts/Text.js';
import { hashOf, type Route } from '../shell/route.js';
import { timeText } from './times.js';

interface Row {
  readonly number: number;
  readonly job: TuningJob;
  readonly name: string;
  readonly gain: number | undefined;
  /** The vendor's time divided by ours. */
  readonly ratio: number | undefined;
}

const MAX_BARS = 32;

function rowsOf({ jobs }: TuningMachine): readonly Row[] {
  return jobs
    .map((job, number): Row => {
      const used = job.final ?? job.best;
      return {
        number,
        job,
        gain: gainOf(job),
        name: `${visible(job.kernel)}  ${visible(job.bucket)}`,
        ratio: job.rival === undefined || used === undefined ? undefined : job.rival.seconds / used.seconds,
      };
    })
    .sort((a, b) => weightOf(b.job) - weightOf(a.job));
}

const ofPeak = ({ shareOfPeak: share, flops = 0 }: TuningJob): OfPeak | undefined =>
  share === undefined ? undefined : { share, flops };

/** Values of a logarithmic scale around 1. */
const TICKS = [0.1, 0.2, 0.5, 0.8, 1, 1.25, 1.5, 2, 3, 5, 10, 20, 50];

export function Jobs({ machine, route }: { readonly machine: TuningMachine; readonly route: Route }) {
  const rows = rowsOf(machine);
  const all = rows.filter(({ gain, ratio }) => gain !== undefined || ratio !== undefined);
  const drawn = all.slice(0, MAX_BARS);
  const values = drawn.flatMap(({ gain, ratio }) => [gain ?? 1, ratio ?? 1]);
  const domain = [Math.min(0.8, ...values) / 1.05, Math.max(1.5, ...values) * 1.05] as const;
  const gains = rows.flatMap(({ gain }) => gain ?? []);
  const mean = gains.length === 0 ? 1 : Math.exp(gains.reduce((sum, gain) => sum + Math.log(gain), 0) / gains.length);
  const rivals = rows.filter(({ ratio }) => ratio !== undefined);
  const summary =
    `${count(rows.length)} kernels and buckets, the most important first; ${count(gains.length)} have a default to ` +
    `compare with, and are ${fixed(mean, 2)} times as fast in the mean` +
    (rivals.length === 0
      ? '. Nothing here was measured beside a vendor’s library'
      : `; ${count(rivals.length)} were measured beside ${visible(rivals[0]!.job.rival!.library)}`) +
    (all.length > drawn.length ? `. The first ${count(drawn.length)} of ${count(all.length)} are drawn` : '');
  const link = ({ number }: Row): string =>
    hashOf({ section: 'tuning', state: { ...route.state, job: String(number) } });
  return (
    <Chart
      title="Against the default schedule"
      summary={summary}
      inputs={[machine]}
      options={(width) => ({
        height: drawn.length * 20 + 48,
        ...namedRows(
          drawn.map(({ name }) => name),
          width,
          310,
        ),
        marginRight: 52,
        x: {
          type: 'log',
          domain,
          label: 'times as fast',
          grid: true,
          axis: 'top',
          ticks: TICKS.filter((at) => at >= domain[0] && at <= domain[1]),
          tickFormat: '~g',
        },
        marks: [
          Plot.ruleX([1], { stroke: 'var(--soft)' }),
          Plot.link(
            drawn.filter(({ gain }) => gain !== undefined),
            { x1: 1, x2: 'gain', y1: 'name', y2: 'name', stroke: 'var(--one)', strokeWidth: 2, strokeOpacity: 0.5 },
          ),
          Plot.dot(
            drawn.filter(({ gain }) => gain !== undefined),
            { x: 'gain', y: 'name', r: 5, fill: 'var(--one)', stroke: 'var(--card)' },
          ),
          Plot.dot(
            drawn.filter(({ ratio }) => ratio !== undefined),
            { x: 'ratio', y: 'name', r: 5, symbol: 'diamond', stroke: 'var(--two)', strokeWidth: 2 },
          ),
          Plot.text(drawn, {
            x: ({ gain, ratio }: Row) => gain ?? ratio ?? 1,
            y: 'name',
            textAnchor: 'start',
            dx: 9,
            text: ({ gain, ratio }: Row) => `${fixed(gain ?? ratio ?? 1, 2)}×`,
            fill: 'var(--soft)',
          }),
        ],
      })}
    >
      <Table
        caption="Kernels and buckets; a link shows the trials"
        note={aboveNote(
          rows.map(({ job }) => ofPeak(job)),
          0,
        )}
        columns={[
          { title: 'Kernel' },
          { title: 'Bucket' },
          { title: '×', isRight: true },
          { title: 'Trials', isRight: true },
          { title: 'Failed', isRight: true },
          { title: 'Default', isRight: true },
          { title: 'Best', isRight: true },
          { title: 'Gain', isRight: true },
          { title: 'Of peak', isRight: true },
          { title: 'Vendor', isRight: true },
          { title: 'Vendor ÷ ours', isRight: true },
          { title: 'Best schedule' },
        ]}
        rows={rows.map((row) => {
          const { job, gain, ratio } = row;
          const of = ofPeak(job);
          return [
            <a key="kernel" href={link(row)}>
              <Name text={job.kernel} />
            </a>,
            <Shown key="bucket" text={job.bucket} />,
            count(job.count),
            count(job.trials),
            count(job.failures),
            job.standard === undefined ? '–' : timeText(job.standard.seconds),
            job.best === undefined ? '–' : timeText(job.best.seconds),
            gain === undefined ? '–' : `${fixed(gain, 2)}×`,
            of === undefined ? '–' : peakText(of, 0),
            job.rival === undefined ? '–' : timeText(job.rival.seconds),
            ratio === undefined ? '–' : fixed(ratio, 3),
            <Shown key="schedule" text={job.best?.schedule ?? '–'} />,
          ];
        })}
      />
    </Chart>
  );
}
