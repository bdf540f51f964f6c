/** Kernels of a function on the roofline of the target. */
import type { FunctionKernels, KernelEntry, Roofline } from '../../document/explore.js';
import { count, counted, si } from '../parts/numbers.js';
import { aboveNote, peakText } from '../parts/peak.js';
import { ridgeOf, RoofChart, type RoofPoint } from '../parts/Roof.js';
import { hashOf } from '../shell/route.js';
import { secondsOf } from './figures.js';

export interface RooflineProps {
  readonly roofline: Roofline;
  readonly fn: FunctionKernels;
  readonly chosen: KernelEntry | undefined;
}

export function RooflineChart({ roofline, fn, chosen }: RooflineProps) {
  const points = fn.kernels.flatMap((kernel): readonly RoofPoint[] => {
    const { flops, bytes, count: launches, title } = kernel;
    if (flops === 0) return [];
    const seconds = secondsOf(kernel);
    return [
      {
        name: title.replace(/^layers\.\{[^}]*\}\./, ''),
        seconds,
        launches,
        intensity: flops / bytes,
        rate: (flops * launches) / seconds,
        isChosen: kernel === chosen,
        href: hashOf({ section: 'kernels', state: { fn: fn.name, kernel: title } }),
      },
    ];
  });
  if (points.length === 0) return null;
  const ridge = ridgeOf(roofline);
  const bound = points.filter(({ intensity }) => intensity < ridge).length;
  const best = points.reduce((a, b) => (b.rate > a.rate ? b : a));
  const ofPeak = { share: best.rate / roofline.flopsPerSecond, flops: best.rate };
  return (
    <RoofChart
      points={points}
      roof={roofline}
      summary={
        `${roofline.name}. The roof bends at ${count(ridge)} FLOPs/byte: ` +
        `${bound} of ${counted(points.length, 'kernel')} with FLOPs ${bound === 1 ? 'lies' : 'lie'} where memory is ` +
        `the limit. The fastest is ${best.name} with ${si(best.rate, 'FLOP/s')}, ${peakText(ofPeak, 0)} of peak. ` +
        'Larger circles take more of the time.'
      }
      inputs={[roofline, fn, chosen]}
      note={aboveNote([ofPeak], 0)}
    />
  );
}
