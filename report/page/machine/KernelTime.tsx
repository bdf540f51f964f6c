/** Where the time of a call goes, kernel by kernel. */
import * as Plot from '@observablehq/plot';
import type { KernelUse } from '../../document/machine.js';
import { Chart } from '../parts/Chart.js';
import { namedRows } from '../../document/namedRows.js';
import { count, fixed, percent, si } from '../parts/numbers.js';
import { aboveNote, peakText, type OfPeak } from '../parts/peak.js';
import { Table } from '../parts/Table.js';
import { Name, Shown, visible } from '../parts/Text.js';

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
