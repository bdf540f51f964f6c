/** The section on tuning: how the search went, what it found, and what that is compared with. */
import { type TuningDocument, type TuningMachine, weightOf } from '../../document/tuning.js';
import { Facts } from '../parts/Facts.js';
import { si } from '../parts/numbers.js';
import { Shown, visible } from '../parts/Text.js';
import { Section } from '../shell/Frame.js';
import { type Route, setState } from '../shell/route.js';
import { Benches } from './Benches.js';
import { Jobs } from './Jobs.js';
import { Overall } from './Overall.js';
import { Trials } from './Trials.js';

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
