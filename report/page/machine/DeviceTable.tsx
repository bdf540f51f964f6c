/** What each device did in the whole run, in numbers. */
import type { DeviceUse, TraceView } from '../../document/machine.js';
import { count, fixed, percent, si } from '../parts/numbers.js';
import { aboveNote, peakText, type OfPeak } from '../parts/peak.js';
import { Table } from '../parts/Table.js';
import { Shown } from '../parts/Text.js';

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
