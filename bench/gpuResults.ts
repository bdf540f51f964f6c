/** The results of a GPU benchmark: ratios of medians over rounds, the table, the file. */
import { ratioOverRounds, sumOverRounds } from '../autotune/cuda/timing.js';
import { median } from '../autotune/records.js';
import type { Finishing } from '../passes/fuseRowNorms.js';
import { at } from '../system/at.js';

/** One schedule of one kernel at one size. */
export interface KernelResult {
  readonly kernel: string;
  readonly tokens: number;
  readonly origin: string;
  readonly schedule: string;
  /** Bytes if every element is read once and written once. */
  readonly bytes?: number;
  /** Median of one launch, epilogue included; absent if it failed. */
  readonly seconds?: number;
  readonly teraflops?: number;
  /** Median of the vendor's library on the bare product. */
  readonly rival?: { readonly algorithm: string; readonly seconds: number; readonly teraflops: number };
  /** Median over rounds of the vendor's time ÷ ours. */
  readonly ratio?: number;
  /** The least and the greatest ratio of a round. */
  readonly ratioRange?: readonly [number, number];
  /** Whether it is the fastest of its kernel and size: the layer consists of these. */
  readonly isBest: boolean;
  readonly failure?: string;
}

export interface LayerResult {
  readonly tokens: number;
  /** Bytes of its kernels if every element is read once and written once. */
  readonly bytes?: number;
  readonly seconds: number;
  /** FLOPs of its products alone ÷ the whole layer's time. */
  readonly teraflops: number;
  /** The vendor's products: the sum of their separate times, and the time of all of them in sequence. */
  readonly sumSeconds: number;
  readonly sequenceSeconds: number;
  /** Medians over rounds of those ÷ the layer's time. */
  readonly ratioToSum: number;
  readonly ratioToSequence: number;
  readonly parts: readonly { readonly kernel: string; readonly seconds: number }[];
}

export interface GpuResults {
  readonly device: string;
  readonly library: string;
  readonly compiler: string;
  readonly model: string;
  readonly rounds: number;
  /** The rate of a kernel that only reads, in the same run. The table then shows shares of it. */
  readonly readBytesPerSecond?: number;
  /** Which products finish rows. Default: the compiler's choice. */
  readonly finishing?: Finishing;
  readonly kernels: readonly KernelResult[];
  readonly layers: readonly LayerResult[];
}

const teraflopsOf = (flops: number, seconds: number): number => flops / seconds / 1e12;

/** Turns times of our kernel and of the library's, round by round, into a result. */
export function compareRounds(
  ours: readonly number[],
  flops: number,
  rival?: { readonly algorithm: string; readonly seconds: readonly number[] },
): Pick<KernelResult, 'seconds' | 'teraflops' | 'rival' | 'ratio' | 'ratioRange'> {
  const seconds = median(ours);
  const own = { seconds, ...(flops > 0 ? { teraflops: teraflopsOf(flops, seconds) } : {}) };
  if (rival === undefined) return own;
  const theirs = median(rival.seconds);
  const quotients = ours.map((each, i) => at(rival.seconds, i) / each);
  return {
    ...own,
    rival: { algorithm: rival.algorithm, seconds: theirs, teraflops: teraflopsOf(flops, theirs) },
    ratio: ratioOverRounds(ours, rival.seconds),
    ratioRange: [Math.min(...quotients), Math.max(...quotients)],
  };
}

/** Rounds of the layer, of the library's sequence, and of each of the library's products. */
export function compareLayer(
  tokens: number,
  flops: number,
  layer: readonly number[],
  sequence: readonly number[],
  products: readonly (readonly number[])[],
  parts: LayerResult['parts'],
): LayerResult {
  const sum = sumOverRounds(products);
  const seconds = median(layer);
  return {
    tokens,
    seconds,
    teraflops: teraflopsOf(flops, seconds),
    sumSeconds: median(sum),
    sequenceSeconds: median(sequence),
    ratioToSum: ratioOverRounds(layer, sum),
    ratioToSequence: ratioOverRounds(layer, sequence),
    parts,
  };
}

const HEADINGS = [
  'kernel',
  'tokens',
  'ours',
  'cuBLASLt',
  'ratio',
  'rounds',
  'TFLOP/s',
  'cuBLASLt',
  'schedule',
] as const;
/** Columns of the table where the read rate is known. They stand before the last. */
const RATE_HEADINGS = ['GB/s', 'of read'] as const;
/** The ratios that a model's contractions and layers must reach against the vendor's bare products. */
export const GOALS = { contraction: 0.95, layer: 0.92 } as const;

const milliseconds = (seconds: number | undefined): string =>
  seconds === undefined ? '–' : `${(seconds * 1000).toPrecision(4)} ms`;
const rounded = (value: number | undefined, digits: number): string =>
  value === undefined ? '–' : value.toFixed(digits);

/** Cells below RATE_HEADINGS; none where the read rate is not known. */
function rateCells(
  { bytes, seconds }: Pick<KernelResult, 'bytes' | 'seconds'>,
  readBytesPerSecond: number | undefined,
): readonly string[] {
  if (readBytesPerSecond === undefined) return [];
  const rate = bytes === undefined || seconds === undefined ? undefined : bytes / seconds;
  return [
    rate === undefined ? '–' : (rate / 1e9).toFixed(0),
    rate === undefined ? '–' : (rate / readBytesPerSecond).toFixed(3),
  ];
}

function kernelCells(result: KernelResult, hasMany: boolean, readRate: number | undefined): readonly string[] {
  const { kernel, tokens, seconds, rival, ratio, ratioRange, teraflops, schedule, origin, failure, isBest } = result;
  return [
    kernel,
    String(tokens),
    milliseconds(seconds),
    milliseconds(rival?.seconds),
    rounded(ratio, 3),
    ratioRange === undefined ? '–' : ratioRange.map((each) => each.toFixed(2)).join('…'),
    rounded(teraflops, 0),
    rounded(rival?.teraflops, 0),
    ...rateCells(result, readRate),
    failure === undefined
      ? `${schedule} (${origin}${hasMany && isBest ? ', fastest' : ''})`
      : `${schedule} (${origin}) fails: ${failure.split('\n')[0]!.slice(0, 120)}`,
  ];
}

/**
 * The kernels' shares of the layer, each timed by itself. Their sum compared with the layer shows the time between
 * launches.
 */
const partsText = ({ parts, seconds: whole }: LayerResult): string => {
  const total = parts.reduce((sum, { seconds }) => sum + seconds, 0);
  return (
    parts.map(({ kernel, seconds }) => `${kernel} ${((100 * seconds) / total).toFixed(1)} %`).join(', ') +
    ` (one by one ${(total / whole).toFixed(3)} of the layer)`
  );
};

const layerCells = (layer: LayerResult, readRate: number | undefined): readonly (readonly string[])[] => [
  [
    'layer ÷ sum',
    String(layer.tokens),
    milliseconds(layer.seconds),
    milliseconds(layer.sumSeconds),
    rounded(layer.ratioToSum, 3),
    '',
    rounded(layer.teraflops, 0),
    '',
    ...rateCells(layer, readRate),
    `${(layer.tokens / layer.seconds / 1000).toFixed(0)}k tokens/s a layer`,
  ],
  [
    'layer ÷ sequence',
    String(layer.tokens),
    '',
    milliseconds(layer.sequenceSeconds),
    rounded(layer.ratioToSequence, 3),
    '',
    '',
    '',
    ...(readRate === undefined ? [] : ['', '']),
    partsText(layer),
  ],
];

/** The least of the best ratios, and whether it reaches the goal. */
function verdict(
  what: string,
  goal: number,
  found: readonly { readonly ratio: number; readonly where: string }[],
): readonly string[] {
  if (found.length === 0) return [];
  const least = found.reduce((low, each) => (each.ratio < low.ratio ? each : low));
  const short = found.filter(({ ratio }) => ratio < goal).length;
  return [
    `${what}: ${least.ratio.toFixed(3)} at least (${least.where}), ${goal} wanted: ` +
      `${short === 0 ? 'reached' : `${short} of ${found.length} short`}`,
  ];
}

/** Lines of the table: kernels by size, each size's layer after them, then the goals. */
export function renderGpuTable(results: GpuResults): readonly string[] {
  const { kernels, layers, readBytesPerSecond } = results;
  const tokens = [...new Set([...kernels, ...layers].map((each) => each.tokens))];
  const rows = tokens.flatMap((t) => {
    const here = kernels.filter((each) => each.tokens === t);
    const isAlone = (kernel: string): boolean => here.filter((each) => each.kernel === kernel).length === 1;
    return [
      ...here.map((each) => kernelCells(each, !isAlone(each.kernel), readBytesPerSecond)),
      ...layers.filter((each) => each.tokens === t).flatMap((each) => layerCells(each, readBytesPerSecond)),
    ];
  });
  const headings = [
    ...HEADINGS.slice(0, -1),
    ...(readBytesPerSecond === undefined ? [] : RATE_HEADINGS),
    HEADINGS.at(-1)!,
  ];
  const isLeft = (column: number): boolean => column === 0 || column === headings.length - 1;
  const table = [headings, ...rows];
  const widths = headings.map((_, i) => Math.max(...table.map((line) => at(line, i).length)));
  const best = kernels.flatMap(({ isBest, ratio, kernel, tokens: t }) =>
    isBest && ratio !== undefined ? [{ ratio, where: `${kernel}, ${t} tokens` }] : [],
  );
  return [
    ...table.map((line) =>
      line
        .map((cell, i) => (isLeft(i) ? cell.padEnd(at(widths, i)) : cell.padStart(at(widths, i))))
        .join('  ')
        .trimEnd(),
    ),
    `${results.model} on ${results.device}${results.finishing === 'all' ? ', every product finishes rows' : ''}; ` +
      `${results.compiler}; cuBLASLt ${results.library}; ` +
      `ratio: its bare product ÷ ours with epilogue, median of ${results.rounds} rounds in turn`,
    ...(readBytesPerSecond === undefined
      ? []
      : [`reading alone in this run: ${(readBytesPerSecond / 1e9).toFixed(0)} GB/s`]),
    ...verdict('contractions', GOALS.contraction, best),
    ...verdict(
      'layer ÷ sum of products',
      GOALS.layer,
      layers.map(({ ratioToSum, tokens: t }) => ({ ratio: ratioToSum, where: `${t} tokens` })),
    ),
  ];
}
