/** What `inspect` prints, for people. */
import type { Peaks } from '../autotune/peaks.js';
import { formatSeconds } from '../autotune/table.js';
import { type Inspection, type RecordedStage, stageSize } from '../commands/inspect.js';
import { groupKernels, type KernelRow, type KernelSource, type TimedRow } from '../commands/inspectKernels.js';
import type { ArenaSlot, MemoryReport } from '../commands/inspectMemory.js';
import type { CompiledModel } from '../driver/targets/target.js';
import type { Bucket, LinkedFunction } from '../ir/plan.js';
import { rowsIn, tokensIn } from '../ir/scoring.js';
import { bytes, count, cut, percent, si, textTable } from '../system/text.js';

/** `12 matmul, 4 mul, …`: neighbours that repeat are counted. */
function fusedOps(ops: readonly string[], width: number): string {
  const counts = new Map<string, number>();
  for (const op of ops) counts.set(op, (counts.get(op) ?? 0) + 1);
  return cut([...counts].map(([op, times]) => (times === 1 ? op : `${op}×${times}`)).join(' '), width);
}

/** The sum of what `f` gives for each item. */
export const sum = <T>(items: readonly T[], f: (item: T) => number): number =>
  items.reduce((total, item) => total + f(item), 0);

/** Data in caches arrive faster than memory's peak allows. */
function shareText({ shareOfPeak, flops }: TimedRow): string {
  if (shareOfPeak === undefined) return '–';
  return flops === 0 && shareOfPeak > 1 ? 'cached' : percent(shareOfPeak, 0);
}

/** What a table of kernels is about. */
export interface KernelTable {
  readonly rows: readonly TimedRow[];
  readonly peaks: Peaks;
  /** The bucket in which launches were measured. */
  readonly bucket: Bucket;
  readonly tokens: number;
  readonly scored: number;
}

/** Kernels that are one text share a line; FLOPs, bytes and seconds are of all of them. */
export function describeKernels({ rows, peaks, bucket, tokens, scored }: KernelTable): string {
  const table = textTable(
    [
      [
        'kernel',
        '×',
        'anchor',
        'shape',
        'FLOPs',
        'bytes',
        'FLOPs/byte',
        'predicted',
        'measured',
        'of peak',
        'fused ops',
      ],
      ...groupKernels(rows).map(({ path, rows: members }) => {
        const [flops, traffic] = [sum(members, (row) => row.flops), sum(members, (row) => row.bytes)];
        const first = members[0]!;
        const { measuredSeconds } = first;
        return [
          path,
          String(members.length),
          first.anchor,
          first.shape,
          flops === 0 ? '-' : si(flops, ''),
          bytes(traffic),
          flops === 0 ? '-' : (flops / traffic).toFixed(0),
          formatSeconds(members.length * first.predictedSeconds),
          measuredSeconds === undefined ? '–' : formatSeconds(members.length * measuredSeconds),
          shareText(first),
          fusedOps(first.ops, 90),
        ];
      }),
    ],
    new Set([1, 4, 5, 6, 7, 8, 9]),
  );
  const flops = sum(rows, (row) => row.flops);
  const moved = sum(rows, (row) => row.bytes);
  const total =
    `${rows.length} kernels, ${new Set(rows.map(({ signature }) => signature)).size} different; ` +
    `at ${count(tokens)} tokens with ${count(scored)} scored rows: ` +
    `${si(flops, 'FLOP')}, ${bytes(moved)} read and written, ` +
    `${formatSeconds(sum(rows, (row) => row.predictedSeconds))} predicted`;
  return `${[...table, '', total, ...describeTimes(rows, peaks, bucket)].join('\n')}\n`;
}

/** Where measured times are from, and the peaks that they are a share of. */
function describeTimes(rows: readonly TimedRow[], { arithmetic, memory }: Peaks, bucket: Bucket): readonly string[] {
  const measured = rows.filter(({ measuredSeconds }) => measuredSeconds !== undefined);
  const roof =
    `peaks: ${si(arithmetic.perSecond, 'FLOP/s')} (${arithmetic.source}), ` +
    `${si(memory.perSecond, 'B/s')} (${memory.source})`;
  if (measured.length === 0)
    return [roof, 'measured: nothing here (tilewright tune measures, and keeps what it measured)'];
  const call =
    measured.length < rows.length ? '' : `, ${formatSeconds(sum(rows, (row) => row.measuredSeconds!))} in all`;
  return [
    roof,
    `measured: by the tuner, in the bucket of ${count(tokensIn(bucket))} tokens and ${count(rowsIn(bucket))} rows; ` +
      `${measured.length} of ${rows.length} kernels${call}`,
  ];
}

export function describeSource(kernel: KernelSource): string {
  return [
    `/* ${kernel.path}`,
    ` * name: ${kernel.name}   signature: ${kernel.signature}`,
    ` * schedule for micro-batches of up to ${tokensIn(kernel.bucket)} tokens: ${kernel.scheduleText}`,
    ` * buffers: ${kernel.parameters.map((name, i) => `${i} ${name}`).join(', ')}`,
    ...(kernel.scratchBytes === undefined ? [] : [` * scratch: ${bytes(kernel.scratchBytes)} a thread`]),
    ...describeResources(kernel),
    ' */',
    kernel.source,
  ].join('\n');
}

/** Threads, registers, shared memory and spills of a GPU's kernel. */
function describeResources({ launch, resources, note }: KernelSource): string[] {
  if (launch === undefined) return [];
  const shape =
    ` * blocks of ${launch.threads} threads${launch.cluster > 1 ? ` in clusters of ${launch.cluster}` : ''}, ` +
    `${bytes(launch.sharedBytes)} of shared memory`;
  if (resources === undefined) return [shape, ...(note === undefined ? [] : [` * not compiled: ${note}`])];
  const { registers, spillStoreBytes, spillLoadBytes } = resources;
  const spills =
    spillStoreBytes + spillLoadBytes === 0
      ? 'no spills'
      : `spills: ${spillStoreBytes} bytes stored, ${spillLoadBytes} loaded`;
  return [`${shape}, ${registers} registers a thread, ${spills}`];
}

/** Launches in order, kernels of one text once, with the schedule of each bucket. */
export function describePlan(
  plan: LinkedFunction<unknown>,
  { target }: CompiledModel,
  rows: readonly KernelRow[],
): string {
  const groups = groupKernels(rows);
  const launches = textTable(
    groups.map(({ path, rows: members }) => [`×${members.length}`, members[0]!.signature, path]),
  );
  const blocks = groups.map(({ path, rows: members }) => {
    const { signature } = members[0]!;
    const perBucket = plan.buckets.map((bucket, i) => ({
      tokens: tokensIn(bucket),
      text: target.compiler.scheduling.describe(plan.schedules[i]![signature]),
    }));
    const lines: string[] = [];
    for (let i = 0; i < perBucket.length;) {
      let end = i;
      while (perBucket[end + 1]?.text === perBucket[i]!.text) end++;
      const span = end === i ? `${perBucket[i]!.tokens}` : `${perBucket[i]!.tokens}–${perBucket[end]!.tokens}`;
      lines.push(`  ${span.padEnd(10)}  ${perBucket[i]!.text}`);
      i = end + 1;
    }
    return [path, ...lines];
  });
  return `${[
    `${plan.launches.length} launches a micro-batch:`,
    ...launches,
    '',
    `Schedules by bucket (tokens of a micro-batch: ${plan.buckets.map(tokensIn).join(', ')}):`,
    ...blocks.flat(),
  ].join('\n')}\n`;
}

const PICTURE = 60;

/** One cell for each launch, or for a few of them where there are many. */
function bar(slot: ArenaSlot, launches: number): string {
  const cells = Math.min(PICTURE, launches);
  return Array.from({ length: cells }, (_, cell) => {
    const [from, to] = [Math.floor((cell * launches) / cells), Math.floor(((cell + 1) * launches) / cells) - 1];
    return slot.alive.some(([first, last]) => first <= to && last >= from) ? '█' : '·';
  }).join('');
}

/** A line of all states and one for each; none where functions keep nothing. */
function describeStates({ states }: MemoryReport): string[] {
  if (states.length === 0) return [];
  const all = sum(states, ({ sizeBytes }) => sizeBytes);
  return [
    `states: ${bytes(all)}, kept from call to call`,
    ...textTable(
      states.map(({ name, dtype, rows, columns, sizeBytes }) => [
        `  ${name}`,
        `${dtype}[${rows}, ${columns}]`,
        bytes(sizeBytes),
      ]),
      new Set([2]),
    ),
  ];
}

export function describeMemory(report: MemoryReport, width: number): string {
  const named = ({ buffers }: ArenaSlot): string =>
    buffers.length === 1 ? buffers[0]! : `${buffers[0]!} and ${buffers.length - 1} more`;
  const table = textTable(
    [
      ['offset', 'size', `alive, first launch to last (${report.launches})`, 'buffers'],
      ...report.slots.map((slot) => [
        bytes(slot.offset),
        bytes(slot.sizeBytes),
        bar(slot, report.launches),
        named(slot),
      ]),
    ],
    new Set([0, 1]),
  ).map((line) => cut(line, width));
  const { capacity } = report;
  const saved = report.arenaBytes === 0 ? 1 : report.withoutReuseBytes / report.arenaBytes;
  const weights =
    report.weights === undefined
      ? ['weights: unknown without the checkpoint']
      : [
          `weights: ${bytes(report.weights.packedBytes)} packed for the kernels, ` +
            `${bytes(report.weights.mappedBytes)} read where they lie in the checkpoint`,
        ];
  return `${[
    `arena: ${bytes(report.arenaBytes)} for micro-batches of up to ${count(capacity.most)} ${capacity.counts}; ` +
      `side by side the buffers would take ${bytes(report.withoutReuseBytes)} (${saved.toFixed(1)}×)`,
    ...describeStates(report),
    ...weights,
    '',
    ...table,
  ].join('\n')}\n`;
}

export const describeStages = (stages: readonly RecordedStage[]): string[] =>
  textTable(
    stages.map((stage, i) => [
      String(i),
      stage.name,
      describeSize(stage),
      stage.changed ? '' : 'no change',
      stage.reason,
    ]),
    new Set([0, 2]),
  );

export const describeSize = (stage: RecordedStage): string =>
  `${count(stageSize(stage))} ${stage.level === 'graph' ? 'ops' : 'kernels'}`;

/** What no pass recognized, equal lines of several layers once. */
export function describeUnrecognized({ unrecognized }: Pick<Inspection, 'unrecognized'>): string[] {
  const layers = new Map<string, number>();
  for (const line of unrecognized) {
    const pattern = line.replace(/^layers\.\d+\./, 'layers.*.');
    layers.set(pattern, (layers.get(pattern) ?? 0) + 1);
  }
  const lines = [...layers].map(([line, times]) => `not recognized: ${line}${times === 1 ? '' : ` (${times} layers)`}`);
  return lines.length === 0 ? ['every pattern was recognized'] : lines;
}
