/**
 * What units of kernels for few rows print besides their Config (gemm/fewRows.cuh): functors for what a row needs and
 * for what becomes of the products of each segment; and their launch.
 */
import { type ClusterSize, type CudaGemmSchedule, type LaunchShape, type TensorMapDecl } from '../../../ir/cuda.js';
import { groupWidth } from '../../../ir/groupSums.js';
import type { ContractionKernel, LogProbKernel } from '../../../ir/kernel.js';
import { shrinkingKernel, shrinkingPrologue } from '../adapter/shrinkers.js';
import { adaptedSegment } from '../text/adapters.js';
import { groupValues, type RowPrologue, segmentsOf } from '../text/contraction.js';
import { fragmentEpilogue } from '../text/fragment.js';
import { type Functor, functorOf } from '../text/functor.js';
import { finishOfTile } from '../text/lanePrograms.js';
import { headBuffers, headConfigText, scaleFunctor } from '../text/logprob.js';
import { type CudaOperands, CudaRowScope, ELEMENT_TYPES, matricesOf, physicalColumns } from '../text/operands.js';
import { prologueFunctor, segmentFunctor, segmentName } from '../text/segments.js';
import { callText } from '../text/unit.js';
import { skinnyStep } from './layout.js';

/** The printed parts of a kernel besides its Config and its head. */
export interface FewRowsText {
  readonly functors: readonly string[];
  readonly body: string;
}

export interface FewRowsCall {
  readonly kernel: ContractionKernel;
  readonly operands: CudaOperands;
  readonly prologue: RowPrologue;
  readonly schedule: CudaGemmSchedule;
  /** The header's function with its template arguments: `skinny_gemm<config>`. */
  readonly callee: string;
  /** C expression of the rows. Default: their extent. */
  readonly rows?: string;
  /** C expression of the left operand. */
  readonly a: string;
  /** C expressions of the weights' tensor maps; absent: weights are read by pointers. */
  readonly weightMaps?: readonly string[];
  /** The same of second factors of adapters, for each segment that has one; absent: they are read by pointers. */
  readonly secondMaps?: readonly string[];
  /** Column tiles, and warps of a block that end rows; some may have left it (the call's result is then negative). */
  readonly across: number;
  readonly warps: number;
  readonly hasCopiers?: boolean;
  /** What the instance of the prologue becomes. Default: it stays. */
  readonly prologueWith?: (instance: string) => string;
}

/** C expressions of a kernel's tensor maps. */
export const mapsOf = (operands: CudaOperands, tensorMaps: readonly TensorMapDecl[]): string[] =>
  tensorMaps.map(({ parameter }) => `&${operands.parameterNames[parameter]!}_map`);

/** What a layer's kernel prints: `callee(rows, a, prologue, segments…)`, and what finishes rows. */
export function fewRowsText(call: FewRowsCall): FewRowsText {
  const { kernel, operands, prologue, schedule, across, warps, weightMaps } = call;
  const isMapped = weightMaps !== undefined;
  const { tm, tn } = schedule;
  const segments = segmentsOf(kernel);
  const finish = finishOfTile(kernel, operands, { tm, across, warps, isSmall: true }, `row0 / ${tm}`);
  const row = prologueFunctor(prologue, operands);
  const shrinking = shrinkingKernel(kernel, schedule);
  const shrinkers = shrinking && shrinkingPrologue(shrinking, operands, row.instance);
  const names = segments.map((segment) => segmentName(segment, operands, segments.length === 1));
  const functors = segments.map((_, i) => epilogueOf(kernel, i, operands, prologue, tn, names[i]!, isMapped));
  const seconds = [...(call.secondMaps ?? [])];
  const line = callText(call.callee, [
    call.rows ?? kernel.rows,
    call.a,
    shrinkers?.instance ?? call.prologueWith?.(row.instance) ?? row.instance,
    ...functors.map((functor, i) => {
      const segment = segments[i]!;
      const typed = { ...functor, type: names[i]! };
      const { type, instance } = adaptedSegment(kernel, segment, operands, typed, shrinkers !== undefined);
      if (weightMaps === undefined) return instance;
      const mapped = `Mapped<${type}>{ ${instance}, ${weightMaps[i]!} }`;
      const second = segment.adapter === undefined ? undefined : seconds.shift();
      return second === undefined ? mapped : `MappedSecond<${type}>{ ${mapped}, ${second} }`;
    }),
  ]);
  const leaves = call.hasCopiers === true ? '  if (row0 < 0) return;\n' : '';
  return {
    functors: [finish.functions, shrinkers?.state ?? '', row.text, ...functors.map(({ text }) => text)],
    body: finish.finish === '' ? `  ${line}` : `  const int row0 = ${line}\n${leaves}${finish.finish}`,
  };
}

/** What a head's kernel prints: `callee(rows, a, prologue, epilogue)`. */
export function fewRowsHead(
  kernel: LogProbKernel,
  operands: CudaOperands,
  prologue: RowPrologue,
  { callee, a, weightMaps }: Pick<FewRowsCall, 'callee' | 'a' | 'weightMaps'>,
): FewRowsText {
  const [row, scale] = [prologueFunctor(prologue, operands), scaleFunctor(kernel, operands, prologue)];
  const weight = operands.get(kernel.weight);
  const type =
    weightMaps === undefined
      ? `WeightedHead<head_config, Scale, ${ELEMENT_TYPES[weight.dtype]}>`
      : 'Mapped<FewRowsHead<head_config, Scale>>';
  const own = `{ ${scale.instance}, ${headBuffers(kernel, operands)} }`;
  const epilogue = `${type}{ ${own}, ${weightMaps?.[0] ?? operands.nameOf(weight)} }`;
  return {
    functors: [headConfigText(kernel, operands), row.text, scale.text],
    body: `  ${callText(callee, [kernel.rows, a, row.instance, epilogue])}`,
  };
}

const ROW =
  'template <class Products>\n' +
  '  TW_DEVICE void row(int row, int is_stored, int column0, int quad, const float *values,\n' +
  '      const Products &products) const';

/** What becomes of the products of segment `index`, in tiles of `tn` columns. */
function epilogueOf(
  kernel: ContractionKernel,
  index: number,
  operands: CudaOperands,
  prologue: RowPrologue,
  tn: number,
  name: string,
  isMapped: boolean,
): Functor {
  const segments = segmentsOf(kernel);
  const segment = segments[index]!;
  const { columns, pairing } = segment;
  const physical = physicalColumns(columns, pairing);
  const given = prologue.given('values');
  const isWhole = physical === columns * matricesOf(pairing) && physical % tn === 0;
  const groups = wholeGroups();
  const text = fragmentEpilogue(
    segment,
    operands,
    {
      row: 'row',
      isStored: 'is_stored',
      prefix: '',
      groups: skinnyStep(segments) / 8,
      acc: (group, lane) => `products(${group}, ${lane})`,
      column: 'column0',
      quad: 'quad',
      isWhole,
      given,
      ...(groups === undefined ? {} : { shared: () => groups.given('0') }),
    },
    0,
  );
  const printed = text.trimEnd().split('\n');
  // Names of the group's values end where the row's own begin.
  const own = groups === undefined ? printed.slice(1, -1).map((line) => line.replace(/^ {2}/, '')) : printed;
  const method = { head: ROW, lines: [...(groups?.lines ?? []), ...own] };
  return isMapped
    ? functorOf(operands, name, [method], [`static constexpr int columns = ${physical};`])
    : segmentFunctor(segment, operands, name, method);

  /**
   * Values that groups of columns share, such as 1/rms of a head. A unit of eight rows is narrower than a group; each
   * adds up the whole group for itself, so that all warps end a tile together.
   */
  function wholeGroups() {
    const width = groupWidth(segment.outputs);
    if (width === undefined) return undefined;
    const scope = new CudaRowScope(operands, 'row', 'gr', given);
    const values = groupValues(segment, scope, {
      prefix: 'g',
      count: 1,
      column: '(column0 - products.column + first)',
      acc: (group, lane) => `whole(${group}, ${lane})`,
      quad: 'quad',
      isWhole,
    })!;
    const lines = [
      `const int first = products.column / ${width} * ${width};`,
      'const Products whole = products.from(first);',
      ...scope.lines,
      ...values.lines,
    ];
    return { lines, given: values.given };
  }
}

/** One block for each tile of the rows and columns. */
export const launchOfTiles = (
  kernel: ContractionKernel,
  size: {
    readonly tm: number;
    readonly threads: number;
    readonly sharedBytes: number;
    readonly columnTiles: number;
    readonly cluster?: ClusterSize;
  },
): LaunchShape => ({
  threads: size.threads,
  sharedBytes: size.sharedBytes,
  cluster: size.cluster ?? 1,
  gridX: { kind: 'tiles', extent: kernel.rows, per: size.tm, times: size.columnTiles },
  gridY: { kind: 'constant', count: 1 },
});
