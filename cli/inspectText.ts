/** What `inspect` prints, for people. */
import type { Peaks } from '../autotune/peaks.js';
import { formatSeconds } from '../autotune/table.js';
import { findStage, type Inspection, type RecordedStage, stageBefore, stageSize } from '../commands/inspect.js';
import {
  type ArenaSlot,
  groupKernels,
  type KernelRow,
  type KernelSource,
  type MemoryReport,
  type TimedRow,
} from '../commands/inspectKernels.js';
import { stageText } from '../driver/compile/compile.js';
import type { CompiledModel } from '../driver/targets/target.js';
import type { WeightDecl } from '../ir/kernel.js';
import type { Header } from '../ir/unit.js';
import type { Bucket, LinkedFunction } from '../ir/plan.js';
import { rowsIn, tokensIn } from '../ir/scoring.js';
import { isCodeFormat } from '../ir/storage.js';
import type { Checkpoint } from '../models/checkpoint.js';
import type { TensorLocation } from '../models/model/tensors.js';
import { keptGroups } from '../models/quantized/compressedTensors.js';
import { type DiffLine, diffLines, type Hunk, hunkHead, hunksOf } from '../system/lineDiff.js';
import { bytes, count, counted, cut, percent, si, textTable } from '../system/text.js';
import type { Style } from './io.js';

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

/** `hasHeaders`: with the text of each header, those first that the unit names itself. */
export function describeSource(kernel: KernelSource, hasHeaders: boolean): string {
  const headers = kernel.headers.toReversed();
  return [
    `/* ${kernel.path}`,
    ` * name: ${kernel.name}   signature: ${kernel.signature}`,
    ` * schedule for micro-batches of up to ${tokensIn(kernel.bucket)} tokens: ${kernel.scheduleText}`,
    ` * buffers: ${kernel.parameters.map((name, i) => `${i} ${name}`).join(', ')}`,
    ...(kernel.scratchBytes === undefined ? [] : [` * scratch: ${bytes(kernel.scratchBytes)} a thread`]),
    ...describeResources(kernel),
    ' */',
    kernel.source,
    ...(hasHeaders ? headers.flatMap(({ name, text }) => [`/* ---- ${name} ---- */`, text]) : describeHeaders(headers)),
  ].join('\n');
}

/** What the unit includes, in a line. */
const describeHeaders = (headers: readonly Header[]): readonly string[] =>
  headers.length === 0
    ? []
    : [`/* headers, printed by --headers: ${headers.map(({ name }) => name).join(', ')} */`, ''];

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

export interface StageDiff {
  readonly pass: string;
  readonly reason: string;
  /** The stage that the pass was given. */
  readonly before: string;
  readonly added: number;
  readonly removed: number;
  readonly hunks: readonly Hunk[];
}

const linesOf = (stage: RecordedStage): string[] => stageText(stage).trimEnd().split('\n');

/** Throws UsageError where there is no such pass, or nothing before it to compare with. */
export function stageDiff(inspection: Inspection, wanted: string): StageDiff {
  const stage = findStage(inspection, wanted);
  const before = stageBefore(inspection, stage);
  const lines = diffLines(linesOf(before), linesOf(stage));
  const marked = (sign: DiffLine['sign']): number => lines.filter((each) => each.sign === sign).length;
  return {
    pass: stage.name,
    reason: stage.reason,
    before: before.name,
    added: marked('+'),
    removed: marked('-'),
    hunks: hunksOf(lines),
  };
}

/** As `diff -u` writes it, below a line that says what was changed. */
export function describeDiff({ pass, reason, before, added, removed, hunks }: StageDiff, style: Style): string {
  const head = style.dim(`# ${pass}: ${reason}`);
  if (hunks.length === 0) return `${head}\n# no line differs from ${before}\n`;
  const painted = ({ sign, line }: DiffLine): string =>
    sign === '+' ? style.green(`+${line}`) : sign === '-' ? style.red(`-${line}`) : ` ${line}`;
  return `${[
    head,
    style.dim(`# ${counted(removed, 'line')} removed, ${counted(added, 'line')} added`),
    style.bold(`--- ${before}`),
    style.bold(`+++ ${pass}`),
    ...hunks.flatMap((hunk) => [style.cyan(hunkHead(hunk)), ...hunk.lines.map(painted)]),
  ].join('\n')}\n`;
}

/** Names of matrices that are shown. */
const SHOWN = 4;

const elementsOf = ({ shape }: TensorLocation): number => shape.reduce((product, extent) => product * extent, 1);

/** Rows of a table, with their first column; none for a checkpoint of floats alone. */
export function describeQuantized({ quantized, tensors }: Checkpoint): readonly (readonly [string, string])[] {
  if (quantized === undefined) return [];
  const all = [...tensors.values()];
  const total = all.reduce((sum, tensor) => sum + elementsOf(tensor), 0);
  const floats = all.filter((tensor) => tensor.kind !== 'encoded' && tensor.shape.length > 1);
  const names = [...new Set(floats.map(({ name }) => name.replace(/\.weight$/, '').replace(/\.\d+\./g, '.{i}.')))];
  const more = names.length > SHOWN ? `, and ${names.length - SHOWN} more` : '';
  const lines = [
    ...[...quantized.schemes].map(
      ([scheme, { matrices, elements }]) =>
        `${counted(matrices, 'matrix', 'matrices')}: ${scheme} (${percent(elements / total)} of the parameters)`,
    ),
    ...(quantized.schemes.size === 0 ? ['no matrix, though config.json says so'] : []),
    `matrices of floats: ${names.length === 0 ? 'none' : `${names.slice(0, SHOWN).join(', ')}${more}`}`,
    ...(quantized.scales.size === 0
      ? []
      : [`not used: ${counted(quantized.scales.size, 'scale')} of activations or caches`]),
  ];
  return lines.map((line, i) => [i === 0 ? 'quantized' : '', line]);
}

const LAYER = /(?:^|\.)(?:layers|h|blocks)\.(\d+)\./;

/** `0–1, 6–7`. */
function ranges(numbers: readonly number[]): string {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const starts = sorted.filter((n) => !sorted.includes(n - 1));
  const ends = sorted.filter((n) => !sorted.includes(n + 1));
  return starts.map((first, i) => (first === ends[i] ? `${first}` : `${first}–${ends[i]!}`)).join(', ');
}

/** Which layers' matrices are multiplied as codes of 8 bits, and which matrices are not; none where all are floats. */
export function describeNarrow(weights: readonly WeightDecl[]): readonly (readonly [string, string])[] {
  const matrices = weights.filter(({ layout }) => layout !== 'rows');
  const tensorsOf = (isCodes: boolean): readonly string[] =>
    matrices
      .filter(({ format }) => isCodeFormat(format) === isCodes)
      .flatMap(({ sources }) => sources.map(({ tensor }) => tensor));
  const layersOf = (tensors: readonly string[]): readonly number[] =>
    tensors.flatMap((tensor) => {
      const [, layer] = LAYER.exec(tensor) ?? [];
      return layer === undefined ? [] : [Number(layer)];
    });
  const codes = tensorsOf(true);
  if (codes.length === 0) return [];
  const floats = tensorsOf(false);
  const [narrow, wide] = [layersOf(codes), layersOf(floats)];
  const others = floats.filter((tensor) => !LAYER.test(tensor)).map((tensor) => tensor.replace(/\.weight$/, ''));
  const kept = [...(wide.length === 0 ? [] : [`of layers ${ranges(wide)}`]), ...new Set(others)];
  return [
    ['8 bits', `${counted(codes.length, 'matrix', 'matrices')}, of layers ${ranges(narrow)}`],
    [
      matrices.some(({ layout }) => layout === 'kmajor') ? '16 bits' : 'floats',
      kept.length === 0 ? 'none' : kept.join(', '),
    ],
  ];
}

/** Why matrices that are stored in 4 bits are not multiplied so; none where all are, or there are no such. */
export function describeDecoded(
  { tensors }: Pick<Checkpoint, 'tensors'>,
  arithmetic: string,
): readonly (readonly [string, string])[] {
  const isStored = (tensor: TensorLocation): boolean =>
    tensor.kind === 'encoded' && tensor.encoding.kind === 'codes' && tensor.encoding.codes.type === 'u4';
  const stored = new Map([...tensors].filter(([, tensor]) => isStored(tensor)));
  const { groups, decoded } = keptGroups(stored);
  const others = stored.size - groups.size - [...decoded.values()].reduce((sum, each) => sum + each, 0);
  const reasons: (readonly [number, string])[] = [
    ...(arithmetic.startsWith('int4')
      ? []
      : [[groups.size, 'only --quantize int4 on Hopper (sm_90a) multiplies 4 bits'] as const]),
    ...[...decoded].map(([reason, matrices]) => [matrices, reason] as const),
    [others, 'outside of layers'],
  ];
  return reasons
    .filter(([matrices]) => matrices > 0)
    .map(([matrices, reason], i) => [
      i === 0 ? 'decoded' : '',
      `${counted(matrices, 'matrix', 'matrices')} of 4 bits: ${reason}`,
    ]);
}
