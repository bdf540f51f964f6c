/** The section on machines: what devices did, how near to their peaks they came, and where memory went. */
import type { MachineDocument, TraceView } from '../../document/machine.js';
import { Facts } from '../parts/Facts.js';
import { counted } from '../parts/numbers.js';
import { Shown } from '../parts/Text.js';
import { Section } from '../shell/Frame.js';
import { setState, type Route } from '../shell/route.js';
import { Arena } from './Arena.js';
import { KernelTime } from './KernelTime.js';
import { Roofline } from './Roofline.js';
import { Startup } from './Startup.js';
import { Timeline } from './Timeline.js';

function About({ trace: { about, file } }: { readonly trace: TraceView }) {
  if (about === undefined)
    return (
      <p>
        <Shown text={file} /> says nothing of the model, of peaks and of memory.
      </p>
    );
  const { model, isa, arithmetic, replicas, stages, version } = about;
  const facts: readonly (readonly [string, string])[] = [
    ['Model', model],
    ['Computed by', `${isa}, ${arithmetic}`],
    [
      'Devices',
      replicas * stages === 1
        ? 'one'
        : [counted(replicas, 'replica'), ...(stages > 1 ? [`of ${stages} stages`] : [])].join(' '),
    ],
    ['Version', version],
  ];
  return <Facts facts={facts} />;
}

function Machine({ traces, route }: MachineDocument & { readonly route: Route }) {
  const number = Math.min(traces.length - 1, Math.max(0, Math.floor(Number(route.state['trace']) || 0)));
  const trace = traces[number]!;
  return (
    <div key={number}>
      <h2 class="hidden">What the machine did</h2>
      {traces.length > 1 && (
        <div class="controls">
          <label>
            Trace{' '}
            <select
              value={String(number)}
              onChange={({ currentTarget }) => setState({ trace: currentTarget.value, from: '', to: '', layer: '' })}
            >
              {traces.map(({ file }, i) => (
                <option key={i} value={String(i)}>
                  {file}
                </option>
              ))}
            </select>
          </label>
        </div>
      )}
      <About trace={trace} />
      <Timeline trace={trace} route={route} />
      <Startup trace={trace} />
      {trace.kernels.length > 0 && (
        <section aria-labelledby="kernels">
          <h3 id="kernels">Kernels</h3>
          <KernelTime kernels={trace.kernels} />
          <Roofline kernels={trace.kernels} peaks={trace.peaks} />
        </section>
      )}
      {trace.memory !== undefined && <Arena memory={trace.memory} route={route} />}
    </div>
  );
}

export const MachineView = ({ route }: { readonly route: Route }) => (
  <Section name="machine">{(content) => <Machine {...content} route={route} />}</Section>
);
