/** What the command and every device did, when: to zoom into, by mouse, keyboard or buttons. */
import * as Plot from '@observablehq/plot';
import { useMemo, useRef } from 'preact/hooks';
import {
  type DeviceUse,
  type Drawn,
  drawnOf,
  moved,
  secondsIn,
  type TraceView,
  type Track,
  type TrackKind,
  type View,
  zoomed,
} from '../../document/machine.js';
import { namedRows } from '../../document/namedRows.js';
import { Chart, type DrawnPlot } from '../parts/Chart.js';
import { Shown, Table } from '../parts/Elements.js';
import { aboveNote, count, fixed, type OfPeak, peakText, percent, si } from '../parts/numbers.js';
import { type Route, setState } from '../parts/route.js';
import { type Row, rowsOf, spanOf, time, wordsOf } from './timelineRows.js';

const COLOURS: Readonly<Record<TrackKind, string>> = {
  startup: 'var(--four)',
  critical: 'var(--ink)',
  compute: 'var(--one)',
  copy: 'var(--two)',
  idle: 'var(--faint)',
  kernel: 'var(--three)',
  other: 'var(--soft)',
};
const LEGEND: readonly (readonly [TrackKind, string])[] = [
  ['critical', 'what the first answer waited for'],
  ['startup', 'start-up'],
  ['compute', 'compute'],
  ['copy', 'copies'],
  ['idle', 'gaps'],
  ['kernel', 'kernels, timed one by one after the run'],
];

const MARGIN_RIGHT = 12;
/** The widest that names of rows get, in pixels. */
const MAX_NAMES = 200;
/** Characters of a label need this many pixels each. */
const LETTER = 6.4;
/** A click moves the pointer less than this. */
const CLICK_PIXELS = 4;

interface Shown extends Drawn {
  readonly row: string;
  readonly track: Track;
}

const seconds = (microseconds: number): number => microseconds / 1e6;

/** The part that the address names, within the whole. */
function viewOf({ state }: Route, whole: View): View {
  const [from, to] = [Number(state['from'] || NaN) * 1e6, Number(state['to'] || NaN) * 1e6];
  return from >= whole.from - 1 && to <= whole.to + 1 && to > from ? { from, to } : whole;
}

const digits = (value: number): string => String(Number(value.toFixed(6)));

function show(view: View, whole: View): void {
  const isWhole = view.from <= whole.from && view.to >= whole.to;
  setState(isWhole ? { from: '', to: '' } : { from: digits(seconds(view.from)), to: digits(seconds(view.to)) });
}

function optionsOf(rows: readonly Row[], names: readonly string[], view: View, width: number): Plot.PlotOptions {
  const named = namedRows(
    rows.map(({ label }) => label),
    width,
    MAX_NAMES,
  );
  const pixels = width - named.marginLeft - MARGIN_RIGHT;
  const all = rows.flatMap(({ label, tracks }) =>
    tracks.flatMap((track) => drawnOf(track, view, pixels).map((each): Shown => ({ ...each, row: label, track }))),
  );
  const x1 = ({ begin }: Shown): number => seconds(begin);
  const x2 = ({ end }: Shown): number => seconds(end);
  const unit = (view.to - view.from) / pixels;
  const kinds = [...new Set(all.map(({ track }) => track.kind))].sort((a) => (a === 'idle' ? -1 : 1));
  const worded = all.filter(
    ({ slices, begin, end, track, first }) =>
      slices === 1 && track.kind !== 'idle' && (end - begin) / unit > LETTER * (names[track.label[first]!]!.length + 1),
  );
  const height = rows.length > 40 ? 14 : 24;
  return {
    height: rows.length * height + 68,
    ...named,
    marginRight: MARGIN_RIGHT,
    marginTop: 24,
    marginBottom: 44,
    x: {
      domain: [seconds(view.from), seconds(view.to)],
      label: 'seconds since the command',
      labelOffset: 38,
      axis: 'both',
      grid: true,
    },
    marks: [
      ...kinds.map((kind) =>
        Plot.barX(
          all.filter(({ track }) => track.kind === kind),
          {
            x1,
            x2,
            y: 'row',
            fill: COLOURS[kind],
            insetTop: 1,
            insetBottom: 1,
            fillOpacity: kind === 'idle' ? 0.35 : ({ busy }: Shown) => 0.35 + 0.65 * busy,
            ...(unit < 1e9 && all.length < 1500 ? { stroke: 'var(--paper)', strokeWidth: 0.5 } : {}),
          },
        ),
      ),
      Plot.text(worded, {
        x: ({ begin, end }: Shown) => seconds((begin + end) / 2),
        y: 'row',
        text: ({ track, first }: Shown) => names[track.label[first]!]!,
        fill: 'var(--paper)',
        fontSize: 10.5,
        pointerEvents: 'none',
      }),
      Plot.tip(
        all,
        Plot.pointer({
          x: ({ begin, end }: Shown) => seconds((begin + end) / 2),
          y: 'row',
          title: (each: Shown) => wordsOf(each.track, names, each),
          fill: 'var(--card)',
          stroke: 'var(--line)',
        }),
      ),
    ],
  };
}

/** What is in view, in a sentence. */
function summaryOf({ tracks, devices }: TraceView, view: View): string {
  const range = `${time(view.from)} to ${time(view.to)}`;
  if (devices.length === 0) return range;
  const width = seconds(view.to - view.from);
  const shares = devices.map(({ process }) => {
    const own = tracks.filter((track) => track.kind === 'compute' && track.process === process);
    return own.reduce((sum, track) => sum + secondsIn(track, view), 0) / width;
  });
  const [least, most] = [Math.min(...shares), Math.max(...shares)];
  const busy = most - least < 0.0005 ? percent(least, 1) : `${percent(least, 1)} to ${percent(most, 1)}`;
  return `${range}: devices compute ${busy} of the time`;
}

export function Timeline({ trace, route }: { readonly trace: TraceView; readonly route: Route }) {
  const rows = useMemo(() => rowsOf(trace), [trace]);
  const whole = useMemo((): View => {
    const { from, to } = spanOf(trace.tracks) ?? { from: 0, to: 1 };
    return { from: Math.min(0, from), to };
  }, [trace]);
  const view = viewOf(route, whole);
  const plot = useRef<DrawnPlot | undefined>(undefined);
  const box = useRef<HTMLDivElement>(null);
  const drag = useRef<{ readonly at: number; readonly x: number } | undefined>(undefined);

  /** The time under a pointer; undefined before anything is drawn. */
  const timeAt = (clientX: number): number | undefined => {
    const chart = plot.current;
    if (chart === undefined) return undefined;
    const left = chart.getBoundingClientRect().left;
    const found = chart.scale('x')?.invert?.(clientX - left) as number | undefined;
    return found === undefined ? undefined : Math.min(view.to, Math.max(view.from, found * 1e6));
  };
  const mark = (from: number, to: number): void => {
    const [chart, element] = [plot.current, box.current];
    if (chart === undefined || element === null) return;
    const outer = element.parentElement!.getBoundingClientRect();
    element.hidden = Math.abs(to - from) < CLICK_PIXELS;
    element.style.left = `${Math.min(from, to) - outer.left}px`;
    element.style.width = `${Math.abs(to - from)}px`;
  };
  const middle = (view.from + view.to) / 2;
  const step = (view.to - view.from) / 4;
  const keys: Readonly<Record<string, () => View>> = {
    ArrowLeft: () => moved(view, -step, whole),
    ArrowRight: () => moved(view, step, whole),
    '+': () => zoomed(view, 0.5, middle, whole),
    '=': () => zoomed(view, 0.5, middle, whole),
    '-': () => zoomed(view, 2, middle, whole),
    '0': () => whole,
    Home: () => moved(view, -Infinity, whole),
    End: () => moved(view, whole.to, whole),
  };
  const presets: readonly (readonly [string, View | undefined])[] = [
    ['Everything', whole],
    ['Start-up', spanOf(trace.tracks, ({ kind }) => kind === 'startup')],
    ['The run', spanOf(trace.tracks, ({ kind }) => kind === 'compute')],
    ['Kernels', spanOf(trace.tracks, ({ kind }) => kind === 'kernel')],
  ];
  const isShown = (part: View): boolean => Math.abs(part.from - view.from) < 1 && Math.abs(part.to - view.to) < 1;
  return (
    <section aria-labelledby="timeline">
      <h3 id="timeline">Timeline</h3>
      <div class="controls" role="group" aria-label="Part of the timeline">
        {presets.map(
          ([name, part]) =>
            part !== undefined && (
              <button key={name} type="button" aria-pressed={isShown(part)} onClick={() => show(part, whole)}>
                {name}
              </button>
            ),
        )}
        <span class="spread" />
        <button type="button" title="Earlier" onClick={() => show(keys['ArrowLeft']!(), whole)}>
          ←
        </button>
        <button type="button" title="Later" onClick={() => show(keys['ArrowRight']!(), whole)}>
          →
        </button>
        <button type="button" title="Wider" onClick={() => show(keys['-']!(), whole)}>
          −
        </button>
        <button type="button" title="Closer" onClick={() => show(keys['+']!(), whole)}>
          +
        </button>
      </div>
      <ul class="colours" aria-hidden="true">
        {LEGEND.filter(([kind]) => trace.tracks.some((track) => track.kind === kind)).map(([kind, name]) => (
          <li key={kind}>
            <i style={{ background: COLOURS[kind], opacity: kind === 'idle' ? 0.5 : 1 }} />
            {name}
          </li>
        ))}
      </ul>
      <div
        class="timeline"
        tabIndex={0}
        role="group"
        aria-label="Timeline: arrows move, plus and minus zoom, 0 shows everything"
        onKeyDown={(event) => {
          const next = keys[event.key];
          if (next === undefined || event.ctrlKey || event.metaKey) return;
          event.preventDefault();
          show(next(), whole);
        }}
        onWheel={(event) => {
          const at = timeAt(event.clientX);
          const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
          if (at === undefined || !(event.ctrlKey || event.metaKey || isSideways)) return;
          event.preventDefault();
          const by = (event.deltaX || event.deltaY) * ((view.to - view.from) / 1000);
          show(isSideways ? moved(view, by, whole) : zoomed(view, 1.002 ** event.deltaY, at, whole), whole);
        }}
        onPointerDown={(event) => {
          const at = timeAt(event.clientX);
          if (at === undefined || event.button !== 0) return;
          drag.current = { at, x: event.clientX };
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={(event) => {
          if (drag.current !== undefined) mark(drag.current.x, event.clientX);
        }}
        onPointerUp={(event) => {
          const [from, to] = [drag.current, timeAt(event.clientX)];
          drag.current = undefined;
          if (box.current !== null) box.current.hidden = true;
          if (from === undefined || to === undefined || Math.abs(event.clientX - from.x) < CLICK_PIXELS) return;
          show({ from: Math.min(from.at, to), to: Math.max(from.at, to) }, whole);
        }}
        onDblClick={() => show(whole, whole)}
      >
        <div ref={box} class="brush" hidden />
        <Chart
          title=""
          summary={summaryOf(trace, view)}
          options={(width) => optionsOf(rows, trace.names, view, width)}
          inputs={[trace, view.from, view.to]}
          onDraw={(drawn) => {
            plot.current = drawn;
          }}
        >
          <DeviceTable trace={trace} />
        </Chart>
      </div>
      <p class="aside">Drag over a part to see it closer; a double click shows everything. Ctrl and the wheel zoom.</p>
    </section>
  );
}

/** What each device did in the whole run, in numbers. */

const shareOf = ({ computeSeconds, idleSeconds }: DeviceUse): string =>
  computeSeconds + idleSeconds === 0 ? '–' : percent(computeSeconds / (computeSeconds + idleSeconds), 1);

const rateOf = ({ flops, computeSeconds }: DeviceUse): number | undefined =>
  flops === null || computeSeconds === 0 ? undefined : flops / computeSeconds;

export function DeviceTable({ trace: { devices, peaks } }: { readonly trace: TraceView }) {
  if (devices.length === 0) return <p class="none">No device computed.</p>;
  const ofPeak = (device: DeviceUse): OfPeak | undefined => {
    const rate = rateOf(device);
    if (rate === undefined || peaks === undefined) return undefined;
    return { share: rate / peaks.arithmetic.perSecond, flops: device.flops };
  };
  return (
    <Table
      note={aboveNote(devices.map(ofPeak), 1)}
      caption="What devices did, in the whole run"
      columns={[
        { title: 'Device' },
        { title: 'Micro-batches', isRight: true },
        { title: 'Tokens', isRight: true },
        { title: 'Compute, s', isRight: true },
        { title: 'Copies, s', isRight: true },
        { title: 'Gaps, s', isRight: true },
        { title: 'Busy', isRight: true },
        { title: 'FLOP/s', isRight: true },
        { title: 'Of peak arithmetic', isRight: true },
      ]}
      rows={devices.map((device) => {
        const [rate, of] = [rateOf(device), ofPeak(device)];
        return [
          <Shown key="name" text={device.process} />,
          count(device.slices),
          count(device.tokens),
          fixed(device.computeSeconds, 3),
          fixed(device.copySeconds, 3),
          fixed(device.idleSeconds, 3),
          shareOf(device),
          rate === undefined ? '–' : si(rate, 'FLOP/s'),
          of === undefined ? '–' : peakText(of, 1),
        ];
      })}
    />
  );
}
