/** The section on machines: what devices did, how near to their peaks they came, and where memory went. */
import * as Plot from '@observablehq/plot';
import type { StartPhase } from '../../../evaluate/startUp.js';
import type { KernelUse, MachineDocument, Phase, TraceView } from '../../document/machine.js';
import { namedRows } from '../../document/namedRows.js';
import { Chart } from '../parts/Chart.js';
import { Facts, Name, Shown, Table, visible } from '../parts/Elements.js';
import { Section } from '../parts/Frame.js';
import { aboveNote, count, counted, duration, fixed, type OfPeak, peakText, percent, si } from '../parts/numbers.js';
import { ridgeOf, roofAt, RoofChart, type RoofPoint } from '../parts/Roof.js';
import { type Route, setState } from '../parts/route.js';
import { StartChart } from '../parts/StartChart.js';
import { Arena } from './Arena.js';
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

/** How the command and its devices started. */

const phaseOf = ({ name, ...rest }: Phase): StartPhase => ({ phase: name, ...rest });

export function Startup({ trace: { phases, loads, start } }: { readonly trace: TraceView }) {
  if (phases.length === 0) return null;
  return (
    <section aria-labelledby="startup">
      <h3 id="startup">Start-up</h3>
      <StartChart {...(start ?? { phases: phases.map(phaseOf), criticalPath: [] })} />
      {loads !== undefined && (
        <details>
          <summary>
            {count(loads.count)} weights, {si(loads.bytes, 'B')} packed in {duration(loads.seconds)}
          </summary>
          <Table
            caption={`The ${loads.longest.length} that took longest`}
            columns={[
              { title: 'Weight' },
              { title: 'Took, ms', isRight: true },
              { title: 'Bytes', isRight: true },
              { title: 'Rate', isRight: true },
            ]}
            rows={loads.longest.map(({ name, seconds, bytes }) => [
              <Shown key="name" text={name} />,
              fixed(1000 * seconds, 2),
              count(bytes),
              seconds > 0 ? si(bytes / seconds, 'B/s') : '–',
            ])}
          />
        </details>
      )}
    </section>
  );
}

/** Kernels of a trace below the roof of the machine. */

interface Point extends RoofPoint {
  readonly path: string;
}

function pointsOf(kernels: readonly KernelUse[]): readonly Point[] {
  return kernels.flatMap(({ flops, bytes, seconds, path, launches }) => {
    if (flops === null || bytes === null || flops === 0 || bytes === 0 || seconds === 0) return [];
    const name = visible(path).replace(/^layers\.\*\./, '');
    return [{ path, name, seconds, launches, intensity: flops / bytes, rate: flops / seconds }];
  });
}

export interface RooflineProps {
  readonly kernels: readonly KernelUse[];
  readonly peaks: TraceView['peaks'] | undefined;
}

export function Roofline({ kernels, peaks }: RooflineProps) {
  const points = pointsOf(kernels);
  if (points.length === 0 || peaks === undefined) return null;
  const { arithmetic, memory } = peaks;
  const roof = { flopsPerSecond: arithmetic.perSecond, bytesPerSecond: memory.perSecond };
  const ridge = ridgeOf(roof);
  const said = (source: string): string => (source === 'measured' ? 'as measured here' : 'as it is known for');
  const bound = points.filter(({ intensity }) => intensity < ridge).length;
  const summary =
    `Peaks of one device: ${si(arithmetic.perSecond, 'FLOP/s')}, ${said(arithmetic.source)}; ` +
    `${si(memory.perSecond, 'B/s')}, ${said(memory.source)}. ` +
    `They meet at ${fixed(ridge, 1)} FLOPs a byte; ` +
    `memory bounds ${bound} of ${counted(points.length, 'kernel')} with FLOPs`;
  const ofRoof = ({ rate, intensity }: Point) => ({ share: rate / roofAt(roof, intensity), flops: rate });
  const note = aboveNote(points.map(ofRoof), 1);
  return (
    <RoofChart points={points} roof={roof} summary={summary} inputs={[kernels, peaks]} note={note}>
      <Table
        caption="Kernels of the roofline"
        columns={[
          { title: 'Kernel' },
          { title: 'FLOPs per byte', isRight: true },
          { title: 'FLOP/s', isRight: true },
          { title: 'Roof there', isRight: true },
          { title: 'Of the roof', isRight: true },
        ]}
        rows={points.map((point) => [
          <Name key="name" text={point.path} />,
          fixed(point.intensity, 1),
          si(point.rate, 'FLOP/s'),
          si(roofAt(roof, point.intensity), 'FLOP/s'),
          peakText(ofRoof(point), 1),
        ])}
      />
    </RoofChart>
  );
}

/** Where the time of a call goes, kernel by kernel. */

const MAX_BARS = 24;
/** Charts narrower than this leave shares of peak to the table. */
const NARROW = 520;
const rate = (amount: number | null, seconds: number, unit: string): string =>
  amount === null || amount === 0 || seconds === 0 ? '–' : si(amount / seconds, unit);

const ofPeak = ({ flops, shareOfPeak: share }: KernelUse): OfPeak | undefined =>
  share === null ? undefined : { share, flops };

function besideBar(kernel: KernelUse): string {
  const of = ofPeak(kernel);
  if (of === undefined) return '';
  const text = peakText(of, 0);
  return `, ${text.startsWith('cached') ? text : text.replace('%', '% of peak')}`;
}

export function KernelTime({ kernels }: { readonly kernels: readonly KernelUse[] }) {
  const total = kernels.reduce((sum, { seconds }) => sum + seconds, 0);
  if (total === 0) return null;
  const bars = kernels.slice(0, MAX_BARS);
  const [first] = kernels;
  const summary =
    `${count(kernels.reduce((sum, { launches }) => sum + launches, 0))} launches, timed one by one, took ` +
    `${(1000 * total).toPrecision(4)} ms; ${visible(first!.path)} took ${percent(first!.seconds / total, 1)} of it` +
    (bars.length < kernels.length ? `; ${count(bars.length)} of ${count(kernels.length)} kernels are drawn` : '');
  const nameOf = ({ path }: KernelUse): string => visible(path);
  return (
    <Chart
      title="Share of time by kernel"
      summary={summary}
      inputs={[kernels]}
      note={aboveNote(kernels.map(ofPeak), 0)}
      options={(width) => ({
        height: bars.length * 24 + 36,
        ...namedRows(bars.map(nameOf), width, 170),
        marginRight: width < NARROW ? 56 : 170,
        x: { label: null, percent: true, grid: true, axis: 'top', tickFormat: (value: number) => `${value} %` },
        marks: [
          Plot.barX(bars, {
            y: nameOf,
            fill: 'var(--three)',
            insetTop: 3,
            insetBottom: 3,
            x: ({ seconds }: KernelUse) => seconds / total,
          }),
          Plot.text(bars, {
            y: nameOf,
            textAnchor: 'start',
            dx: 5,
            fill: 'var(--soft)',
            x: ({ seconds }: KernelUse) => seconds / total,
            text: (kernel: KernelUse) =>
              `${percent(kernel.seconds / total, 1)}${width < NARROW ? '' : besideBar(kernel)}`,
          }),
        ],
      })}
    >
      <Table
        caption="Kernels, in order of their time"
        columns={[
          { title: 'Kernel' },
          { title: 'Kind' },
          { title: 'Launches', isRight: true },
          { title: 'Time, ms', isRight: true },
          { title: 'Of all', isRight: true },
          { title: 'FLOPs', isRight: true },
          { title: 'Bytes', isRight: true },
          { title: 'FLOP/s', isRight: true },
          { title: 'B/s', isRight: true },
          { title: 'Of peak', isRight: true },
        ]}
        rows={kernels.map(({ path, anchor, launches, seconds, flops, bytes, shareOfPeak: share }) => [
          <Name key="path" text={path} />,
          <Shown key="anchor" text={anchor} />,
          count(launches),
          fixed(1000 * seconds, 3),
          percent(seconds / total, 1),
          flops === null ? '–' : si(flops, ''),
          bytes === null ? '–' : si(bytes, ''),
          rate(flops, seconds, 'FLOP/s'),
          rate(bytes, seconds, 'B/s'),
          share === null ? '–' : peakText({ share, flops }, 0),
        ])}
      />
    </Chart>
  );
}
