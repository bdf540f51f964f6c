/** Kernels below the roof of a machine: FLOP/s against FLOPs for each byte that must be moved. */
import * as Plot from '@observablehq/plot';
import type { ComponentChildren } from 'preact';
import { Chart } from './Chart.js';
import { count, fixed, percent, si } from './numbers.js';

/** A kernel below the roof. */
export interface RoofPoint {
  readonly name: string;
  /** FLOPs for each byte, and FLOP/s. */
  readonly intensity: number;
  readonly rate: number;
  /** Of all its launches. */
  readonly seconds: number;
  readonly launches: number;
  /** The address that a circle leads to. */
  readonly href?: string;
  readonly isChosen?: boolean;
}

/** What a machine reaches: FLOP/s and bytes a second. */
export interface Roof {
  readonly flopsPerSecond: number;
  readonly bytesPerSecond: number;
}

/** FLOPs a byte at which arithmetic and memory bound alike. */
export const ridgeOf = ({ flopsPerSecond, bytesPerSecond }: Roof): number => flopsPerSecond / bytesPerSecond;
/** FLOP/s that the roof allows a kernel at most. */
export const roofAt = ({ flopsPerSecond, bytesPerSecond }: Roof, intensity: number): number =>
  Math.min(flopsPerSecond, bytesPerSecond * intensity);

/** Two decades around the points and the ridge, at least. */
function domainsOf(
  points: readonly RoofPoint[],
  ridge: number,
  top: number,
): { x: [number, number]; y: [number, number] } {
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
const PLACES = [-9, 11, -23, 25, -37, 39];
const MARGIN = { left: 76, right: 20, top: 20, bottom: 44 } as const;
const heightOf = (width: number): number => Math.max(320, Math.min(480, width * 0.5));

interface Area {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

/** Names beside their points, where none lies upon another or upon a point: first of what takes most time. */
function placed(
  points: readonly RoofPoint[],
  x: readonly [number, number],
  y: readonly [number, number],
  width: number,
  radiusOf: (point: RoofPoint) => number,
): readonly { readonly point: RoofPoint; readonly dy: number }[] {
  const across = width - MARGIN.left - MARGIN.right;
  const down = heightOf(width) - MARGIN.top - MARGIN.bottom;
  const at = (value: number, [from, to]: readonly [number, number], pixels: number): number =>
    (pixels * Math.log(value / from)) / Math.log(to / from);
  const areaOf = (middle: readonly [number, number], [half, tall]: readonly [number, number]): Area => ({
    left: middle[0] - half,
    right: middle[0] + half,
    top: middle[1] - tall,
    bottom: middle[1] + tall,
  });
  const drawn = points
    .toSorted((a, b) => b.seconds - a.seconds)
    .map((point) => {
      const middle = [at(point.intensity, x, across), down - at(point.rate, y, down)] as const;
      return { point, middle, circle: areaOf(middle, [radiusOf(point), radiusOf(point)]) };
    });
  const taken: Area[] = [];
  return drawn.flatMap(({ point, middle, circle }) => {
    const half = (LETTER * point.name.length) / 2;
    const nameAt = (dy: number): Area => areaOf([middle[0], middle[1] + dy], [half, LINE / 2]);
    const isFree = (area: Area): boolean =>
      area.left >= 0 &&
      area.right <= across + MARGIN.right &&
      area.top >= 0 &&
      area.bottom <= down &&
      [...taken, ...drawn.flatMap((each) => (each.circle === circle ? [] : [each.circle]))].every(
        ({ left, right, top, bottom }) =>
          area.right < left || area.left > right || area.bottom <= top || area.top >= bottom,
      );
    const dy = PLACES.map((place) => place + Math.sign(place) * radiusOf(point)).find((each) => isFree(nameAt(each)));
    if (dy === undefined) return [];
    taken.push(nameAt(dy));
    return [{ point, dy }];
  });
}

export interface RoofChartProps {
  readonly points: readonly RoofPoint[];
  readonly roof: Roof;
  readonly summary: string;
  /** What points and roof depend on. */
  readonly inputs: readonly unknown[];
  readonly note?: string | undefined;
  /** The figures as a table. */
  readonly children?: ComponentChildren;
}

export function RoofChart({ points, roof, summary, inputs, note, children }: RoofChartProps) {
  const ridge = ridgeOf(roof);
  const { x, y } = domainsOf(points, ridge, roof.flopsPerSecond);
  const line = [x[0], ridge, x[1]].map((at) => ({ at, rate: roofAt(roof, at) }));
  const total = points.reduce((sum, { seconds }) => sum + seconds, 0);
  const most = points.reduce((top, { seconds }) => Math.max(top, seconds / total), 0);
  // The area of a circle is the share of time.
  const radiusOf = ({ seconds }: RoofPoint): number =>
    RADII[0] + (RADII[1] - RADII[0]) * Math.sqrt(seconds / total / most);
  return (
    <Chart
      title="Roofline"
      {...{ summary, inputs, note }}
      options={(width) => ({
        height: heightOf(width),
        marginLeft: MARGIN.left,
        marginTop: MARGIN.top,
        marginRight: MARGIN.right,
        x: { type: 'log', domain: x, grid: true, label: 'FLOPs per byte', labelOffset: 38 },
        marginBottom: MARGIN.bottom,
        y: {
          type: 'log',
          domain: y,
          grid: true,
          label: 'FLOP/s',
          tickFormat: (value: number) => (ROUND.has(value.toPrecision(1)[0]!) ? si(value, '') : ''),
        },
        r: { range: [...RADII], domain: [0, most] },
        marks: [
          Plot.line(line, { x: 'at', y: 'rate', stroke: 'var(--soft)', strokeWidth: 2 }),
          Plot.ruleX([ridge], { stroke: 'var(--faint)', strokeDasharray: '3,4' }),
          Plot.dot(points, {
            x: 'intensity',
            y: 'rate',
            fillOpacity: 0.75,
            stroke: 'var(--card)',
            href: 'href',
            fill: ({ isChosen }: RoofPoint) => (isChosen === true ? 'var(--two)' : 'var(--three)'),
            r: ({ seconds }: RoofPoint) => seconds / total,
          }),
          ...placed(points, x, y, width, radiusOf).map(({ point, dy }) =>
            Plot.text([point], { x: 'intensity', y: 'rate', dy, text: 'name', fill: 'var(--ink)', fontSize: 11 }),
          ),
          Plot.tip(
            points,
            Plot.pointer({
              x: 'intensity',
              y: 'rate',
              fill: 'var(--card)',
              stroke: 'var(--line)',
              title: ({ name, launches, seconds, intensity, rate }: RoofPoint) =>
                [
                  name,
                  `${si(rate, 'FLOP/s')} at ${fixed(intensity, 1)} FLOPs a byte`,
                  `${percent(seconds / total, 1)} of the time, ${count(launches)} launches`,
                ].join('\n'),
            }),
          ),
        ],
      })}
    >
      {children}
    </Chart>
  );
}
