/** How the time of a whole call fell while the tuner searched. */
import * as Plot from '@observablehq/plot';
import { type Progress, progressOf, type TuningMachine } from '../../document/tuning.js';
import { Chart } from '../parts/Chart.js';
import { count, counted, duration, percent } from '../parts/numbers.js';
import { Table } from '../parts/Table.js';
import { Shown } from '../parts/Text.js';

/** Points of a line that nobody could tell apart. */
const MAX_POINTS = 1500;

/** The points at which something was gained, the first and the last. */
const stepsOf = (all: readonly Progress[]): readonly Progress[] =>
  all.filter(({ share }, i) => i === 0 || i === all.length - 1 || share !== all[i - 1]!.share).slice(-MAX_POINTS);

export function Overall({ machine }: { readonly machine: TuningMachine }) {
  const { trials, failures } = machine;
  const steps = stepsOf(progressOf(machine));
  const last = steps.at(-1);
  const failed = trials.seconds.filter((seconds) => seconds === null).length;
  const told = failures.reduce((sum, { count: number }) => sum + number, 0);
  const summary =
    `${counted(trials.job.length, 'trial')} in ${duration(trials.at.at(-1) ?? 0)}` +
    `${failed === 0 ? '' : `, ${count(failed)} of them failed`}` +
    (last === undefined
      ? ''
      : `; kernels of the largest calls take ${percent(last.share, 1)} of their time by default`);
  return (
    <>
      {last === undefined ? (
        <p>{summary}.</p>
      ) : (
        <Chart
          title="The largest calls, as the search went on"
          summary={summary}
          inputs={[machine]}
          options={() => ({
            height: 220,
            marginLeft: 60,
            x: { label: 'trial', domain: [1, Math.max(2, trials.job.length)] },
            y: {
              label: 'of the time by default',
              percent: true,
              grid: true,
              zero: false,
              tickFormat: (at: number) => `${at} %`,
            },
            marks: [
              Plot.areaY(steps, {
                x: 'number',
                y1: 0,
                y2: 'share',
                curve: 'step-after',
                fill: 'var(--one)',
                fillOpacity: 0.12,
                clip: true,
              }),
              Plot.line(steps, { x: 'number', y: 'share', curve: 'step-after', stroke: 'var(--one)', strokeWidth: 2 }),
            ],
          })}
        >
          <Table
            caption="Trials that gained something"
            columns={[{ title: 'Trial' }, { title: 'Of the time by default', isRight: true }]}
            rows={steps.map(({ number, share }) => [count(number), percent(share, 2)])}
          />
        </Chart>
      )}
      {failures.length > 0 && (
        <details>
          <summary>Why {counted(failed, 'trial')} failed</summary>
          <Table
            caption="Reasons, most frequent first"
            columns={[{ title: 'Reason' }, { title: 'Trials', isRight: true }]}
            rows={[
              ...failures.map(({ reason, count: number }) => [<Shown key="reason" text={reason} />, count(number)]),
              ...(told < failed ? [['other reasons, or none that was written down', count(failed - told)]] : []),
            ]}
          />
        </details>
      )}
    </>
  );
}
