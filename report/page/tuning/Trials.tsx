/** Trials of one kernel and bucket in their order, with the best so far, the default and the vendor's library. */
import * as Plot from '@observablehq/plot';
import { withoutMiddle } from '../../document/namedRows.js';
import { type Trial, trialsOf, type TuningJob, type TuningMachine } from '../../document/tuning.js';
import { Chart } from '../parts/Chart.js';
import { count, counted, fixed } from '../parts/numbers.js';
import { Table } from '../parts/Table.js';
import { Shown, visible } from '../parts/Text.js';
import { timeText } from './times.js';

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
