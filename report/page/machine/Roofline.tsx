/** Kernels below the roof of the machine: FLOP/s against FLOPs for each byte that must be moved. */
import * as Plot from '@observablehq/plot';
import type { KernelUse, TraceView } from '../../document/machine.js';
import { Chart } from '../parts/Chart.js';
import { count, fixed, percent, si } from '../parts/numbers.js';
import { Table } from '../parts/Table.js';
import { Shown, visible } from '../parts/Text.js';

interface Point {
  readonly kernel: KernelUse;
  readonly name: string;
  readonly intensity: number;
  readonly rate: number;
}

function pointsOf(kernels: readonly KernelUse[]): readonly Point[] {
  return kernels.flatMap((kernel) => {
    const { flops, bytes, seconds, path } = kernel;
    if (flops === null || bytes === null || flops === 0 || bytes === 0 || seconds === 0) return [];
    return [
      { kernel, name: visible(path).replace(/^layers\.\*\./, ''), intensity: flops / bytes, rate: flops / seconds },
    ];
  });
}

/** Two decades around the points and the ridge, at least. */
function domainsOf(points: readonly Point[], ridge: number, top: number): { x: [number, number]; y: [number, number] } {
  const least = (values: readonly number[]): number => values.reduce((a, b) => Math.min(a, b), Infinity);
  const most = (values: readonly number[]): number => values.reduce((a, b) => Math.max(a, b), 0);
  const across = points.map(({ intensity }) => intensity);
  const rates = points.map(({ rate }) => rate);
  return {
    x: [Math.min(least(across), ridge) / 3, Math.max(most(across), ridge) * 4],
    y: [Math.min(least(rates), top / 8) / 1.6, Math.max(most(rates), top) * 1.8],
  };
}

/** First digits of values that an axis names. */
const ROUND: ReadonlySet<string> = new Set(['1', '2', '5']);
const RADII = [3, 18] as const;
const LETTER = 6.2;
const LINE = 14;
/** Where names may stand above and below their points, the nearest first. */
const PLACES = [-9, 11, -23, 25, -37, 39, -51, 53, -65, 67];
const height = (width: number): number => Math.max(320, Math.min(480, width * 0.5));

/** Names beside their points so that none lies upon another. */
function placed(
  points: readonly Point[],
  x: readonly [number, number],
  y: readonly [number, number],
  width: number,
  radiusOf: (point: Point) => number,
): readonly { readonly point: Point; readonly dy: number }[] {
  const at = (value: number, [from, to]: readonly [number, number], pixels: number): number =>
    (pixels * Math.log(value / from)) / Math.log(to / from);
  const taken: { readonly left: number; readonly right: number; readonly middle: number }[] = [];
  return points.map((point) => {
    const across = at(point.intensity, x, width - 96);
    const down = -at(point.rate, y, height(width) - 50);
    const half = (LETTER * point.name.length) / 2;
    const radius = radiusOf(point);
    const isFree = (dy: number): boolean =>
      taken.every(
        ({ left, right, middle }) =>
          across + half < left || across - half > right || Math.abs(down + dy - middle) >= LINE,
      );
    const places = PLACES.map((place) => place + Math.sign(place) * radius);
    const dy = places.find(isFree) ?? places[0]!;
    taken.push({ left: across - half, right: across + half, middle: down + dy });
    return { point, dy };
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
  const ridge = arithmetic.perSecond / memory.perSecond;
  const { x, y } = domainsOf(points, ridge, arithmetic.perSecond);
  const roof = [x[0], ridge, x[1]].map((at) => ({
    at,
    rate: Math.min(arithmetic.perSecond, memory.perSecond * at),
  }));
  const total = points.reduce((sum, { kernel }) => sum + kernel.seconds, 0);
  const most = points.reduce((top, { kernel }) => Math.max(top, kernel.seconds / total), 0);
  // The area of a circle is the share of time.
  const radiusOf = ({ kernel }: Point): number =>
    RADII[0] + (RADII[1] - RADII[0]) * Math.sqrt(kernel.seconds / total / most);
  const said = (source: string): string => (source === 'measured' ? 'as measured here' : 'as it is known for');
  const bound = points.filter(({ intensity }) => intensity < ridge).length;
  const summary =
    `Peaks of one device: ${si(arithmetic.perSecond, 'FLOP/s')}, ${said(arithmetic.source)}; ` +
    `${si(memory.perSecond, 'B/s')}, ${said(memory.source)}. ` +
    `They meet at ${fixed(ridge, 1)} FLOPs a byte; memory bounds ${bound} of ${points.length} kernels`;
  return (
    <Chart
      title="Roofline"
      summary={summary}
      inputs={[kernels, peaks]}
      options={(width) => ({
        height: height(width),
        marginLeft: 76,
        x: { type: 'log', domain: x, grid: true, label: 'FLOPs per byte', labelOffset: 38 },
        marginBottom: 44,
        y: {
          ...{ type: 'log', domain: y, grid: true, label: 'FLOP/s' },
          tickFormat: (value: number) => (ROUND.has(value.toPrecision(1)[0]!) ? si(value, '') : ''),
        },
        r: { range: [...RADII], domain: [0, most] },
        marks: [
          Plot.line(roof, { x: 'at', y: 'rate', stroke: 'var(--soft)', strokeWidth: 2 }),
          Plot.ruleX([ridge], { stroke: 'var(--faint)', strokeDasharray: '3,4' }),
          Plot.dot(points, {
            ...{ x: 'intensity', y: 'rate', fill: 'var(--three)', fillOpacity: 0.75, stroke: 'var(--card)' },
            r: ({ kernel }: Point) => kernel.seconds / total,
          }),
          ...placed(points, x, y, width, radiusOf).map(({ point, dy }) =>
            Plot.text([point], { x: 'intensity', y: 'rate', dy, text: 'name', fill: 'var(--ink)', fontSize: 11 }),
          ),
          Plot.tip(
            points,
            Plot.pointer({
              ...{ x: 'intensity', y: 'rate', fill: 'var(--card)', stroke: 'var(--line)' },
              title: ({ name, kernel, intensity, rate }: Point) =>
                [
                  name,
                  `${si(rate, 'FLOP/s')} at ${fixed(intensity, 1)} FLOPs a byte`,
                  `${percent(kernel.seconds / total, 1)} of the time, ${count(kernel.launches)} launches`,
                ].join('\n'),
            }),
          ),
        ],
      })}
    >
      <Table
        caption="Kernels of the roofline"
        columns={[
          { title: 'Kernel' },
          { title: 'FLOPs per byte', isRight: true },
          { title: 'FLOP/s', isRight: true },
          { title: 'Roof there', isRight: true },
          { title: 'Of the roof', isRight: true },
        ]}
        rows={points.map(({ kernel, intensity, rate }) => {
          const above = Math.min(arithmetic.perSecond, memory.perSecond * intensity);
          return [
            <Shown key="name" text={kernel.path} />,
            fixed(intensity, 1),
            si(rate, 'FLOP/s'),
            si(above, 'FLOP/s'),
            percent(rate / above, 1),
          ];
        })}
      />
    </Chart>
  );
}
