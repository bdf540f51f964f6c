/** The section on tuning: how the search went, what it found, and what that is compared with. */
import * as Plot from '@observablehq/plot';
import { namedRows } from '../../document/namedRows.js';
import {
  type Bench,
  type BenchRow,
  type Progress,
  progressOf,
  type TuningDocument,
  type TuningMachine,
  weightOf,
} from '../../document/tuning.js';
import { Chart } from '../parts/Chart.js';
import { Facts, Shown, Table, visible } from '../parts/Elements.js';
import { Section } from '../parts/Frame.js';
import { count, counted, duration, fixed, percent, si, timeText } from '../parts/numbers.js';
import { type Route, setState } from '../parts/route.js';
import { Jobs, Trials } from './Jobs.js';

/** The one that takes most of a run, unless the address names another. */
function jobOf({ jobs }: TuningMachine, { state }: Route): number {
  const named = Number(state['job'] || NaN);
  if (Number.isInteger(named) && named >= 0 && named < jobs.length) return named;
  return jobs.reduce((top, job, i) => (weightOf(job) > weightOf(jobs[top]!) ? i : top), 0);
}

function MachineFacts({ machine: { name, facts, peaks, begin } }: { readonly machine: TuningMachine }) {
  const all: readonly (readonly [string, string])[] = [
    ['Machine', name],
    ['Begun', begin.slice(0, 10)],
    ...(peaks === undefined
      ? []
      : ([
          ['Peak arithmetic', `${si(peaks.arithmetic.perSecond, 'FLOP/s')}, ${peaks.arithmetic.source}`],
          ['Peak memory', `${si(peaks.memory.perSecond, 'B/s')}, ${peaks.memory.source}`],
        ] as const)),
  ];
  return (
    <>
      <Facts facts={all} />
      <details>
        <summary>What the measurements depend on</summary>
        <p>
          <Shown text={facts.map(([fact, value]) => `${fact}: ${value}`).join(', ')} />
        </p>
      </details>
    </>
  );
}

function Machine({ machine, route }: { readonly machine: TuningMachine; readonly route: Route }) {
  const number = jobOf(machine, route);
  const order = machine.jobs
    .map((job, i) => ({ job, i }))
    .sort((a, b) => (a.job.kernel === b.job.kernel ? b.job.size - a.job.size : a.job.kernel < b.job.kernel ? -1 : 1));
  return (
    <>
      <h2 class="hidden">What the tuner found</h2>
      <MachineFacts machine={machine} />
      <section aria-labelledby="search">
        <h3 id="search">The search</h3>
        <Overall machine={machine} />
      </section>
      <section aria-labelledby="trials">
        <h3 id="trials">Trials</h3>
        <div class="controls">
          <label>
            Kernel and bucket{' '}
            <select value={String(number)} onChange={({ currentTarget }) => setState({ job: currentTarget.value })}>
              {order.map(({ job, i }) => (
                <option key={i} value={String(i)}>
                  {`${visible(job.kernel)}, ${visible(job.bucket)} (${job.trials})`}
                </option>
              ))}
            </select>
          </label>
        </div>
        <Trials machine={machine} number={number} />
      </section>
      <section aria-labelledby="found">
        <h3 id="found">What was found</h3>
        <Jobs machine={machine} route={route} />
      </section>
    </>
  );
}

function Tuning({ machines, benches, route }: TuningDocument & { readonly route: Route }) {
  const at = Math.min(machines.length - 1, Math.max(0, Math.floor(Number(route.state['machine']) || 0)));
  const machine = machines[at];
  return (
    <div>
      {machines.length > 1 && (
        <div class="controls">
          <label>
            Machine{' '}
            <select
              value={String(at)}
              onChange={({ currentTarget }) => setState({ machine: currentTarget.value, job: '' })}
            >
              {machines.map(({ name, facts }, i) => (
                <option key={i} value={String(i)}>
                  {`${visible(name)} (${visible(facts.find(([fact]) => fact === 'codegen')?.[1] ?? '')})`}
                </option>
              ))}
            </select>
          </label>
        </div>
      )}
      {machine !== undefined && <Machine key={at} machine={machine} route={route} />}
      {benches.length > 0 && (
        <section aria-labelledby="vendor">
          <h3 id="vendor">Beside the vendor’s library</h3>
          <Benches benches={benches} />
        </section>
      )}
    </div>
  );
}

export const TuningView = ({ route }: { readonly route: Route }) => (
  <Section name="tuning">{(content) => <Tuning {...content} route={route} />}</Section>
);

/** How the time of a whole call fell while the tuner searched. */

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

/** Kernels beside the vendor's library, as `bench:gpu` measured them in turns. */

const nameOf = ({ kernel, tokens }: BenchRow): string => `${visible(kernel)}  ${count(tokens)}`;
const ratioOf = ({ rival, seconds }: BenchRow): number => rival!.seconds / seconds;

export function Benches({ benches }: { readonly benches: readonly Bench[] }) {
  return (
    <>
      {benches.map((bench, i) => {
        const compared = bench.rows.filter(({ rival }) => rival !== undefined);
        const ahead = compared.filter((row) => ratioOf(row) >= 1).length;
        const summary =
          `${visible(bench.device)}, ${visible(bench.library)}: ` +
          `ours is at least as fast for ${count(ahead)} of ${count(compared.length)} kernels`;
        return (
          <Chart
            key={i}
            title={`${visible(bench.model)} beside the vendor’s library`}
            summary={summary}
            inputs={[bench]}
            options={(width) => ({
              height: compared.length * 20 + 48,
              ...namedRows(compared.map(nameOf), width, 220),
              marginRight: 52,
              x: { label: 'times as fast as the vendor', grid: true, axis: 'top' },
              marks: [
                Plot.ruleX([1], { stroke: 'var(--soft)' }),
                Plot.dot(compared, { x: ratioOf, y: nameOf, r: 5, fill: 'var(--two)', stroke: 'var(--card)' }),
                Plot.text(compared, {
                  x: ratioOf,
                  y: nameOf,
                  textAnchor: 'start',
                  dx: 9,
                  fill: 'var(--soft)',
                  text: (row: BenchRow) => fixed(ratioOf(row), 3),
                }),
              ],
            })}
          >
            <Table
              caption="Kernels with their epilogues, and the vendor's bare products"
              columns={[
                { title: 'Kernel' },
                { title: 'Tokens', isRight: true },
                { title: 'Ours', isRight: true },
                { title: 'Vendor', isRight: true },
                { title: 'Vendor ÷ ours', isRight: true },
                { title: 'Schedule' },
              ]}
              rows={bench.rows.map((row) => [
                <Shown key="kernel" text={row.kernel} />,
                count(row.tokens),
                timeText(row.seconds),
                row.rival === undefined ? '–' : timeText(row.rival.seconds),
                row.rival === undefined ? '–' : fixed(ratioOf(row), 3),
                <Shown key="schedule" text={row.schedule} />,
              ])}
            />
          </Chart>
        );
      })}
    </>
  );
}
