/** Kernels on the roofline: how fast each is, against how much it computes for a byte. */
import * as Plot from '@observablehq/plot';
import type { FunctionKernels, KernelEntry, Roofline } from '../../document/explore.js';
import { Chart } from '../parts/Chart.js';
import { count, percent, si } from '../parts/numbers.js';
import { hashOf } from '../shell/route.js';
import { secondsOf } from './figures.js';

interface Dot {
  readonly title: string;
  readonly intensity: number;
  readonly rate: number;
  readonly share: number;
  readonly isChosen: boolean;
  readonly href: string;
}

const TOP = ['layers', 'head'];
/** Dots that bear their names: those that take longest. */
const NAMED = 5;
const shortName = (title: string): string =>
  title
    .replace(/^layers\.(\{[^}]*\}|\d+)\./, '')
    .split('.')
    .filter((word) => !TOP.includes(word) || title === word)
    .join('.');

export function RooflineChart({
  roofline,
  fn,
  chosen,
}: {
  readonly roofline: Roofline;
  readonly fn: FunctionKernels;
  readonly chosen: KernelEntry | undefined;
}) {
  const { flopsPerSecond, bytesPerSecond, name } = roofline;
  const all = fn.kernels.reduce((sum, kernel) => sum + secondsOf(kernel), 0);
  const dots = fn.kernels.flatMap((kernel): Dot[] => {
    const { flops, bytes, count: launches, title } = kernel;
    if (flops === 0) return [];
    const took = secondsOf(kernel);
    return [
      {
        title,
        intensity: flops / bytes,
        rate: (flops * launches) / took,
        share: took / all,
        isChosen: kernel === chosen,
        href: hashOf({ section: 'kernels', state: { fn: fn.name, kernel: title } }),
      },
    ];
  });
  if (dots.length === 0) return null;
  const ridge = flopsPerSecond / bytesPerSecond;
  const least = Math.min(ridge / 8, ...dots.map(({ intensity }) => intensity / 2));
  const most = Math.max(ridge * 8, ...dots.map(({ intensity }) => intensity * 2));
  const roof = [
    { x: least, y: least * bytesPerSecond },
    { x: ridge, y: flopsPerSecond },
    { x: most, y: flopsPerSecond },
  ];
  const slowest = Math.min(...dots.map(({ rate }) => rate), least * bytesPerSecond);
  const bound = dots.filter(({ intensity }) => intensity < ridge).length;
  const best = dots.reduce((a, b) => (b.rate > a.rate ? b : a));
  const longest = [...dots].sort((a, b) => b.share - a.share).slice(0, NAMED);
  const named = longest.sort((a, b) => a.intensity - b.intensity);
  return (
    <Chart
      title="Roofline"
      summary={
        `${name}. The roof bends at ${count(ridge)} FLOPs/byte: ${bound} of ${dots.length} kernels lie where memory ` +
        `is the limit. The fastest is ${best.title} with ${si(best.rate, 'FLOP/s')}, ` +
        `${percent(best.rate / flopsPerSecond, 0)} of peak. ` +
        'Larger dots take more of the time.'
      }
      inputs={[roofline, fn, chosen]}
      options={() => ({
        height: 300,
        marginLeft: 64,
        marginRight: 24,
        x: {
          type: 'log',
          label: 'FLOPs/byte →',
          domain: [least, most],
          tickFormat: (value: number) => si(value, '').trim(),
        },
        y: {
          type: 'log',
          label: '↑ FLOP/s',
          domain: [slowest / 2, flopsPerSecond * 1.5],
          tickFormat: (value: number) => si(value, '').trim(),
          grid: true,
        },
        r: { range: [3, 16], domain: [0, 1] },
        marks: [
          Plot.line(roof, { x: 'x', y: 'y', stroke: 'var(--soft)', strokeWidth: 1.5 }),
          Plot.dot(dots, {
            ...{ x: 'intensity', y: 'rate', r: 'share', href: 'href', title: 'title' },
            fill: (dot: Dot) => (dot.isChosen ? 'var(--two)' : 'var(--one)'),
            fillOpacity: 0.55,
            stroke: (dot: Dot) => (dot.isChosen ? 'var(--two)' : 'var(--one)'),
          }),
          // Names of neighbours above and below their dots in turn.
          ...[0, 1].map((side) =>
            Plot.text(
              named.filter((_, i) => i % 2 === side),
              {
                ...{ x: 'intensity', y: 'rate', text: (dot: Dot) => shortName(dot.title), dy: side === 0 ? -18 : 20 },
                ...{ fill: 'var(--ink)', stroke: 'var(--paper)', strokeWidth: 4 },
              },
            ),
          ),
        ],
      })}
    />
  );
}
