/** Maps and packs weights as planned by runtime/weightPlan.ts. */
import type { WeightDecl } from '../../ir/kernel.js';
import { physicalToLogical, sourceRows, tensorRow } from '../../ir/packing.js';
import { FORMATS, isCodeFormat } from '../../ir/storage.js';
import { defined } from '../../system/defined.js';
import { loadAddon } from '../addon.js';
import { encodedMatrix, type FileMappings, type LoadProgress, orDamaged } from '../files.js';
import type { NativeMemory, NativePool, PackJob, PackSource, Slot } from '../native.js';
import { encodedRow, fileRanges, fileRow, fileSpan, type TensorSource } from '../tensorSource.js';
import { type PackedWeight, tensorFiles, type WeightPlan } from '../weightPlan.js';

/** `rows`: those of the source; of a file, what lies between its blocks counts too. */
function packSource(source: TensorSource, name: string, rows: number, files: FileMappings): PackSource {
  switch (source.kind) {
    case 'file':
      return {
        kind: 'memory',
        format: FORMATS[source.format].code,
        rows,
        memory: files.get(source.file, source.offset, fileSpan(source).bytes),
        offset: source.offset,
      };
    case 'assembled': {
      const { format, tiles } = source;
      const ranges = fileRanges(source);
      const places = tiles.map(({ row, rows: count, column, columns, isTransposed, stride, step = 1 }, i) => ({
        memory: files.get(ranges[i]!.file, ranges[i]!.offset, ranges[i]!.bytes),
        offset: ranges[i]!.offset,
        row,
        rows: count,
        column,
        columns,
        rowStride: isTransposed ? step : stride,
        columnStride: isTransposed ? stride : step,
      }));
      return { kind: 'tiles', format: FORMATS[format].code, rows, tiles: places };
    }
    case 'encoded':
      return encodedMatrix(source, name, files);
    case 'random':
      return { kind: 'random', format: FORMATS[source.format].code, rows, seed: source.seed, scale: source.scale };
    case 'constant':
      return { kind: 'constant', format: FORMATS[source.format].code, rows, value: source.value };
    default:
      return source satisfies never;
  }
}

/** Rows of a source as its memory has them, which rowMap numbers one source after another. */
const rowsInMemory = (source: TensorSource, rows: number): number =>
  source.kind === 'file' && source.blocks !== undefined
    ? fileSpan(source).rows
    : source.kind === 'encoded'
      ? source.rows
      : rows;

/** The row of a source's memory that is row `row` of the source. */
const rowInMemory = (source: TensorSource, row: number): number =>
  source.kind === 'file' ? fileRow(source, row) : source.kind === 'encoded' ? encodedRow(source, row) : row;

const isWhole = (source: TensorSource): boolean =>
  !(
    (source.kind === 'file' && source.blocks !== undefined) ||
    (source.kind === 'encoded' && source.view !== undefined)
  );

/** For each physical column, the row that it holds, in memory; −1 for padding. */
function memoryRows({ weight, sources }: PackedWeight): Int32Array {
  const logical = physicalToLogical(weight);
  if (sources.every(isWhole) && !hasOrder(weight)) return logical;
  const places = new Int32Array(sourceRows(weight));
  let [first, firstInMemory] = [0, 0];
  sources.forEach((source, i) => {
    const own = weight.sources[i]!;
    const { rows } = own;
    for (let row = 0; row < rows; row++) {
      places[first + row] = firstInMemory + rowInMemory(source, tensorRow(own, row));
    }
    first += rows;
    firstInMemory += rowsInMemory(source, rows);
  });
  return logical.map((row) => (row < 0 ? row : places[row]!));
}

const hasOrder = ({ sources }: WeightDecl): boolean => sources.some(({ order }) => order !== undefined);

async function packWeight(
  pool: NativePool,
  weight: PackedWeight,
  files: FileMappings,
  target: NativeMemory,
): Promise<void> {
  const { layout, format, scalesOf, from, sources, columnScale, columnOffset } = weight.weight;
  if (layout === 'kmajor' || layout === 'groups' || layout === 'microscaled')
    throw new Error(`Weight ${weight.weight.name} is laid out for a GPU.`);
  const job: PackJob = {
    layout,
    format: FORMATS[format].code,
    ...(layout === 'quads' ? { quads: format } : {}),
    ...(isCodeFormat(format) || scalesOf !== undefined ? { codes: from === 'codes' ? 'stored' : 'rounded' } : {}),
    k: scalesOf?.k ?? weight.weight.k,
    rowMap: memoryRows(weight),
    sources: weight.sources.map((source, i) =>
      packSource(source, sources[i]!.tensor, rowsInMemory(source, sources[i]!.rows), files),
    ),
    ...defined({ columnScale: weight.columnScale && packSource(weight.columnScale, columnScale!, 1, files) }),
    ...defined({ columnOffset }),
    target: { memory: target, offset: weight.offset, bytes: weight.bytes },
  };
  await orDamaged(
    async () => loadAddon().pack(pool, job),
    (tensor) => weight.sources[sources.findIndex((source) => source.tensor === tensor)],
  );
}

function advise(weight: PackedWeight | undefined, files: FileMappings, advice: 'willneed' | 'dontneed'): void {
  if (weight === undefined) return;
  for (const { file, offset, bytes } of tensorFiles(weight))
    files.get(file, offset, bytes).advise(advice, offset, bytes);
}

/** What LoadProgress counts of a plan. */
export const bytesToPack = (plan: WeightPlan): number =>
  plan.weights.reduce((sum, weight) => sum + (weight.kind === 'packed' ? weight.bytes : 0), 0);

/**
 * Loads all weights: slots by weight name. While one is packed, the next is read ahead; the pages of a packed one are
 * given back, so that a whole checkpoint is never resident beside its packed form.
 * Throws UserError for files that are missing, cut off or unreadable.
 */
export async function loadWeights(
  plan: WeightPlan,
  pool: NativePool,
  files: FileMappings,
  packed: NativeMemory | undefined,
  onProgress?: (progress: LoadProgress) => void,
): Promise<ReadonlyMap<string, Slot>> {
  const slots = new Map<string, Slot>();
  const toPack = plan.weights.filter((weight) => weight.kind === 'packed');
  const totalBytes = bytesToPack(plan);
  let doneBytes = 0;
  const place = (names: readonly string[], slot: Slot): void => names.forEach((name) => slots.set(name, slot));
  const packedMemory = (): NativeMemory => {
    if (packed === undefined) throw new Error('No memory was given for packed weights.');
    return packed;
  };

  for (const weight of plan.weights) {
    if (weight.kind === 'mapped')
      place(weight.names, {
        memory: files.get(weight.file, weight.offset, weight.bytes),
        offset: weight.offset,
        bytes: weight.bytes,
      });
    if (weight.kind === 'literal') {
      packedMemory().write(weight.offset, weight.values);
      place(weight.names, { memory: packedMemory(), offset: weight.offset, bytes: weight.bytes });
    }
    // New memory is zero.
    if (weight.kind === 'slots')
      place(weight.names, { memory: packedMemory(), offset: weight.offset, bytes: weight.bytes });
  }
  for (const [i, weight] of toPack.entries()) {
    const begin = performance.now();
    advise(toPack[i + 1], files, 'willneed');
    await packWeight(pool, weight, files, packedMemory());
    advise(weight, files, 'dontneed');
    place(weight.names, { memory: packedMemory(), offset: weight.offset, bytes: weight.bytes });
    doneBytes += weight.bytes;
    const took = { seconds: (performance.now() - begin) / 1000, bytes: weight.bytes };
    onProgress?.({ doneBytes, totalBytes, weight: weight.weight.name, took });
  }
  return slots;
}
