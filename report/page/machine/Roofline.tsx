/** Kernels of a trace below the roof of the machine. */
import type { KernelUse, TraceView } from '../../document/machine.js';
import { counted, fixed, si } from '../parts/numbers.js';
import { aboveNote, peakText } from '../parts/peak.js';
import { ridgeOf, RoofChart, roofAt, type RoofPoint } from '../parts/Roof.js';
import { Table } from '../parts/Table.js';
import { Name, visible } from '../parts/Text.js';

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
