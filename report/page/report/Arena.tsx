/** The arena over a call: every buffer as a rectangle, where it lies and for how long. */
import * as Plot from '@observablehq/plot';
import { useMemo } from 'preact/hooks';
import type { TraceBuffer, TraceView } from '../../document/machine.js';
import { Chart } from '../parts/Chart.js';
import { Shown, Table, visible } from '../parts/Elements.js';
import { count, si } from '../parts/numbers.js';
import { type Route, setState } from '../parts/route.js';

type Memory = NonNullable<TraceView['memory']>;

const LIVES = ['throughout the call', 'for the next kernels', 'for longer'] as const;
type Life = (typeof LIVES)[number];
const COLOURS: Readonly<Record<Life, string>> = {
  'throughout the call': 'var(--faint)',
  'for the next kernels': 'var(--one)',
  'for longer': 'var(--two)',
};
/** Launches for which a buffer is kept that its neighbours alone read. */
const NEXT = 2;

function lifeOf({ first, last }: TraceBuffer, launches: number): Life {
  if (first === 0 && last >= launches - 1) return 'throughout the call';
  return last - first < NEXT ? 'for the next kernels' : 'for longer';
}

/** The maximum number of bytes in use at a time. */
function maxLive({ buffers, launches }: Memory): number {
  const change = new Map<number, number>();
  for (const { first, last, bytes } of buffers) {
    change.set(first, (change.get(first) ?? 0) + bytes);
    change.set(last + 1, (change.get(last + 1) ?? 0) - bytes);
  }
  let [live, most] = [0, 0];
  for (let at = 0; at < launches.length; at++) most = Math.max(most, (live += change.get(at) ?? 0));
  return most;
}

const layerOf = (path: string): string | undefined => /^layers\.(\d+)\./.exec(path)?.[1];
const MAX_ROWS = 200;

/** First and last launch that are shown: those of a layer, or all. */
function rangeOf({ launches }: Memory, layer: string): readonly [number, number] {
  const first = launches.findIndex((path) => layerOf(path) === layer);
  return first < 0 ? [0, launches.length - 1] : [first, launches.findLastIndex((path) => layerOf(path) === layer)];
}

export function Arena({ memory, route }: { readonly memory: Memory; readonly route: Route }) {
  const { buffers, launches, arenaBytes, states, weights } = memory;
  const layers = useMemo(() => [...new Set(launches.flatMap((path) => layerOf(path) ?? []))], [memory]);
  const layer = route.state['layer'] ?? '';
  const [first, last] = rangeOf(memory, layer);
  const shown = buffers.filter((buffer) => buffer.first <= last && buffer.last >= first);
  const apart = buffers.reduce((sum, { bytes }) => sum + bytes, 0);
  const most = useMemo(() => maxLive(memory), [memory]);
  const isNear = last - first < 16;
  const summary =
    `${count(buffers.length)} buffers share ${si(arenaBytes, 'B')}, of which ${si(most, 'B')} are needed at a time; ` +
    `side by side they would take ${si(apart, 'B')}, ${(apart / Math.max(1, arenaBytes)).toFixed(1)} times as much` +
    (shown.length < buffers.length ? `. The launches of layer ${layer} need ${count(shown.length)} of them` : '');
  const kept = [
    ...(weights === undefined ? [] : [`${si(weights.packedBytes, 'B')} of packed weights`]),
    ...(weights === undefined || weights.mappedBytes === 0 ? [] : [`${si(weights.mappedBytes, 'B')} read in place`]),
    ...states.map(({ name, bytes }) => `${si(bytes, 'B')} of ${visible(name)}`).slice(0, 8),
  ];
  const wordsOf = (buffer: TraceBuffer): string =>
    [
      visible(buffer.name),
      `${si(buffer.bytes, 'B')} from byte ${count(buffer.offset)} on`,
      `from ${visible(launches[buffer.first] ?? '')}`,
      `to ${visible(launches[buffer.last] ?? '')}`,
    ].join('\n');
  const visibleNames = shown.filter(({ bytes }) => bytes > arenaBytes / 28);
  return (
    <section aria-labelledby="memory">
      <h3 id="memory">Memory</h3>
      {layers.length > 1 && (
        <div class="controls">
          <label>
            Launches of{' '}
            <select value={layer} onChange={({ currentTarget }) => setState({ layer: currentTarget.value })}>
              <option value="">all layers</option>
              {layers.map((each) => (
                <option key={each} value={each}>
                  layer {each}
                </option>
              ))}
            </select>
          </label>
        </div>
      )}
      <ul class="colours" aria-hidden="true">
        {LIVES.map((life) => (
          <li key={life}>
            <i style={{ background: COLOURS[life] }} />
            {life}
          </li>
        ))}
      </ul>
      <Chart
        title="The arena during a call"
        summary={summary}
        inputs={[memory, layer]}
        options={() => ({
          height: 360,
          marginLeft: 76,
          marginBottom: isNear ? 96 : 40,
          x: {
            domain: [first, last + 1],
            label: isNear ? null : 'launches',
            ...(isNear
              ? {
                  ticks: Array.from({ length: last - first + 1 }, (_, i) => first + i + 0.5),
                  tickFormat: (at: number) => visible(launches[Math.floor(at)] ?? '').replace(/^layers\.\d+\./, ''),
                  tickRotate: -40,
                }
              : {}),
          },
          y: { domain: [0, arenaBytes], label: 'bytes', grid: true, tickFormat: (value: number) => si(value, '') },
          marks: [
            ...LIVES.map((life) =>
              Plot.rect(
                shown.filter((buffer) => lifeOf(buffer, launches.length) === life),
                {
                  x1: (buffer: TraceBuffer) => Math.max(first, buffer.first),
                  x2: (buffer: TraceBuffer) => Math.min(last, buffer.last) + 1,
                  y1: 'offset',
                  y2: ({ offset, bytes }: TraceBuffer) => offset + bytes,
                  fill: COLOURS[life],
                  fillOpacity: 0.75,
                  stroke: 'var(--paper)',
                  strokeWidth: isNear ? 1 : 0.5,
                },
              ),
            ),
            ...(isNear
              ? [
                  Plot.text(visibleNames, {
                    x: (buffer: TraceBuffer) => (Math.max(first, buffer.first) + Math.min(last, buffer.last) + 1) / 2,
                    y: ({ offset, bytes }: TraceBuffer) => offset + bytes / 2,
                    text: ({ name }: TraceBuffer) => visible(name),
                    fill: 'var(--paper)',
                    fontSize: 10.5,
                  }),
                ]
              : []),
            Plot.tip(
              shown,
              Plot.pointer({
                x: (buffer: TraceBuffer) => (Math.max(first, buffer.first) + Math.min(last, buffer.last) + 1) / 2,
                y: ({ offset, bytes }: TraceBuffer) => offset + bytes / 2,
                title: wordsOf,
                fill: 'var(--card)',
                stroke: 'var(--line)',
                maxRadius: 200,
              }),
            ),
          ],
        })}
      >
        <Table
          caption={
            shown.length > MAX_ROWS ? `The first ${MAX_ROWS} of ${count(shown.length)} buffers` : 'Buffers of the arena'
          }
          columns={[
            { title: 'Buffer' },
            { title: 'Offset', isRight: true },
            { title: 'Bytes', isRight: true },
            { title: 'From launch' },
            { title: 'To launch' },
          ]}
          rows={shown
            .slice(0, MAX_ROWS)
            .map((buffer) => [
              <Shown key="name" text={buffer.name} />,
              count(buffer.offset),
              count(buffer.bytes),
              <Shown key="first" text={`${buffer.first} ${launches[buffer.first] ?? ''}`} />,
              <Shown key="last" text={`${buffer.last} ${launches[buffer.last] ?? ''}`} />,
            ])}
        />
      </Chart>
      {kept.length > 0 && <p class="aside">Beside the arena: {kept.join(', ')}.</p>}
    </section>
  );
}
