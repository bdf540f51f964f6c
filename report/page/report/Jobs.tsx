/** What tuning gained, per kernel and bucket, against the default schedule and the vendor's library. */
import * as Plot from '@observablehq/plot';
import { namedRows, withoutMiddle } from '../../document/namedRows.js';
import { gainOf, type Trial, trialsOf, type TuningJob, type TuningMachine, weightOf } from '../../document/tuning.js';
import { Chart } from '../parts/Chart.js';
import { Name, Shown, Table, visible } from '../parts/Elements.js';
import { aboveNote, count, counted, fixed, type OfPeak, peakText, timeText } from '../parts/numbers.js';
import { hashOf, type Route } from '../parts/route.js';

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

/** Trials of one kernel and bucket in their order, with the best so far, the default and the vendor's library. */

const MAX_ROWS = 500;

/** Lines that trials are compared with. */
const linesOf = ({ standard, rival }: TuningJob): readonly { readonly name: string; readonly seconds: number }[] => [
  ...(standard === undefined ? [] : [{ name: 'default', seconds: standard.seconds }]),
  ...(rival === undefined ? [] : [{ name: visible(rival.library), seconds: rival.seconds }]),
];

function summaryOf(job: TuningJob, trials: readonly Trial[]): string {
  const { best, standard, rival, failures } = job;
  const parts = [`${counted(trials.length, 'trial')}${failures === 0 ? '' : `, ${count(failures)} of them failed`}`];
  if (best !== undefined) parts.push(`the best took ${timeText(best.seconds)}`);
  if (best !== undefined && standard !== undefined)
    parts.push(`the default ${timeText(standard.seconds)}, ${fixed(standard.seconds / best.seconds, 2)} times that`);
  if (best !== undefined && rival !== undefined)
    parts.push(`${visible(rival.library)} ${timeText(rival.seconds)} for the bare product`);
  return parts.join('; ');
}

export function Trials({ machine, number }: { readonly machine: TuningMachine; readonly number: number }) {
  const job = machine.jobs[number]!;
  const trials = trialsOf(machine, number);
  const worked = trials.filter(({ seconds }) => seconds !== null);
  const failed = trials.filter(({ seconds }) => seconds === null);
  const lines = linesOf(job);
  const top = worked.reduce((most, { seconds }) => Math.max(most, seconds!), 0);
  const unit = top < 1e-3 ? { name: 'µs', scale: 1e6 } : { name: 'ms', scale: 1e3 };
  const least = worked.reduce((low, { seconds }) => Math.min(low, seconds!), top);
  const among = lines.map(({ seconds }) => seconds);
  const domain = [0.93 * unit.scale * Math.min(least, ...among), 1.07 * unit.scale * Math.max(top, ...among)];
  return (
    <Chart
      title={`${visible(job.kernel)}, ${visible(job.bucket)}`}
      summary={summaryOf(job, trials)}
      inputs={[machine, number]}
      options={() => ({
        height: 320,
        marginLeft: 60,
        marginRight: 96,
        x: { label: 'trial', domain: [0.5, Math.max(trials.length, 2) + 0.5], tickFormat: 'd', interval: 1, ticks: 12 },
        y: { type: 'log', label: `time of a launch, ${unit.name}`, grid: true, tickFormat: '~g', ticks: 6, domain },
        marks: [
          Plot.ruleY(lines, {
            y: ({ seconds }) => seconds * unit.scale,
            stroke: 'var(--faint)',
            strokeDasharray: '5,4',
          }),
          Plot.text(lines, {
            y: ({ seconds }) => seconds * unit.scale,
            frameAnchor: 'right' as const,
            text: ({ name }) => withoutMiddle(name, 12),
            textAnchor: 'start' as const,
            dx: 6,
            fill: 'var(--soft)',
          }),
          Plot.line(
            trials.filter(({ best }) => best !== null),
            {
              x: 'number',
              curve: 'step-after',
              stroke: 'var(--one)',
              strokeWidth: 2,
              y: ({ best }: Trial) => best! * unit.scale,
            },
          ),
          Plot.dot(worked, {
            x: 'number',
            y: ({ seconds }: Trial) => seconds! * unit.scale,
            r: 4,
            fill: 'var(--one)',
            fillOpacity: 0.45,
            stroke: 'var(--one)',
            strokeWidth: 1,
          }),
          Plot.dot(failed, { x: 'number', frameAnchor: 'top', symbol: 'times', stroke: 'var(--wrong)', r: 4 }),
          Plot.tip(
            worked,
            Plot.pointer({
              x: 'number',
              y: ({ seconds }: Trial) => seconds! * unit.scale,
              title: ({ number: at, seconds, schedule }: Trial) =>
                `trial ${at}: ${timeText(seconds!)}\n${visible(schedule)}`,
              fill: 'var(--card)',
              stroke: 'var(--line)',
            }),
          ),
        ],
      })}
    >
      <Table
        caption={trials.length > MAX_ROWS ? `The first ${MAX_ROWS} of ${count(trials.length)} trials` : 'Trials'}
        columns={[
          { title: 'Trial' },
          { title: 'After, s', isRight: true },
          { title: 'Time', isRight: true },
          { title: 'Best so far', isRight: true },
          { title: 'Schedule' },
        ]}
        rows={trials
          .slice(0, MAX_ROWS)
          .map(({ number: at, at: after, seconds, best, schedule }) => [
            String(at),
            fixed(after, 1),
            seconds === null ? 'failed' : timeText(seconds),
            best === null ? '–' : timeText(best),
            <Shown key="schedule" text={schedule} />,
          ])}
      />
    </Chart>
  );
}
