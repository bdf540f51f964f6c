/** Decides, before anything is allocated, which weights stay mapped and where the packed ones lie. */
import type { ConstantVector, WeightDecl } from '../ir/kernel.js';
import { packedBytes, rowMaps } from '../ir/packing.js';
import { FORMATS } from '../ir/storage.js';
import { roundUp } from '../ir/types.js';
import { fileRanges, requireTensor, type FileRange, type TensorSource } from './tensorSource.js';

/** A weight's tensors, checked to have its shape. */
interface StoredWeight {
  readonly names: readonly string[];
  readonly weight: WeightDecl;
  readonly bytes: number;
}

/** Read in place from the checkpoint. */
export interface MappedWeight extends StoredWeight {
  readonly kind: 'mapped';
  readonly file: string;
  readonly offset: number;
}

/** Copied into the packed memory at `offset`, in the weight's layout. */
export interface PackedWeight extends StoredWeight {
  readonly kind: 'packed';
  readonly offset: number;
  readonly sources: readonly TensorSource[];
  readonly columnScale: TensorSource | undefined;
}

/** The parts of files that a packed weight is made of. */
export const tensorFiles = (weight: PackedWeight): FileRange[] =>
  [...weight.sources, ...(weight.columnScale === undefined ? [] : [weight.columnScale])].flatMap(fileRanges);

/** Values from the plan, written into the packed memory at `offset`. */
export interface LiteralWeight extends StoredWeight {
  readonly kind: 'literal';
  readonly offset: number;
  readonly values: Float32Array;
}

/** Zeros in the packed memory at `offset`, which adapters are written to later. */
export interface SlotWeight extends StoredWeight {
  readonly kind: 'slots';
  readonly offset: number;
}

export type PlacedWeight = MappedWeight | PackedWeight | LiteralWeight | SlotWeight;

/** One slot of a weight, packed as its kernels read it: ir/packing's slotBytes. */
export interface SlotWrite {
  readonly weight: string;
  readonly slot: number;
  readonly data: Uint8Array;
}

/** What is written at once, and where in the packed memory. */
export interface PlacedWrite {
  readonly offset: number;
  readonly data: Uint8Array;
}

/** Throws RangeError for a write that is of no weight with slots, of no slot of it, or of another size than a slot. */
export function checkWrites(weights: readonly WeightDecl[], writes: readonly SlotWrite[]): void {
  const byName = new Map(weights.map((weight) => [weight.name, weight]));
  for (const { weight: name, slot, data } of writes) {
    const weight = byName.get(name);
    const count = weight?.slots?.count;
    if (weight === undefined || count === undefined) throw new RangeError(`${name} is no weight with slots.`);
    if (!Number.isInteger(slot) || slot < 0 || slot >= count)
      throw new RangeError(`${name} has slots 0 to ${count - 1}, not ${slot}.`);
    const bytes = packedBytes(weight, rowMaps()(weight).length) / count;
    if (data.length !== bytes) throw new RangeError(`A slot of ${name} has ${bytes} bytes, not ${data.length}.`);
  }
}

/** The places of writes that were checked, without those of weights that the plan does not have. */
export function placeWrites({ weights }: WeightPlan, writes: readonly SlotWrite[]): readonly PlacedWrite[] {
  const offsets = new Map(
    weights.flatMap((placed) => (placed.kind === 'slots' ? placed.names.map((name) => [name, placed.offset]) : [])),
  );
  return writes.flatMap(({ weight, slot, data }) => {
    const offset = offsets.get(weight);
    return offset === undefined ? [] : [{ offset: offset + slot * data.length, data }];
  });
}

export interface WeightPlan {
  /** One entry for all weights that hold the same values in the same layout. */
  readonly weights: readonly PlacedWeight[];
  readonly mappedBytes: number;
  readonly packedBytes: number;
}

/** Packed weights start on a page: no two share one, and every vector load is aligned. */
const ALIGNMENT = 4096;

/** Weights with equal keys hold the same bytes. */
const keyOf = ({ name: _name, ...rest }: WeightDecl): string =>
  JSON.stringify([
    rest.layout,
    rest.format,
    rest.sources.map(({ tensor, rows, order }) => [tensor, rows, order ?? null]),
    rest.k,
    rest.pairing,
    rest.columnScale ?? null,
    rest.columnOffset ?? 0,
    rest.experts ?? 1,
    rest.scalesOf ?? null,
    rest.from ?? null,
    rest.group ?? null,
    rest.slots ?? null,
  ]);

/** The location of bytes that can be read in place: in the right format, from one tensor, with aligned elements. */
function isReadable(weight: WeightDecl, sources: readonly TensorSource[]): boolean {
  const [source] = sources;
  return (
    weight.layout === 'rows' &&
    sources.length === 1 &&
    weight.columnScale === undefined &&
    weight.scalesOf === undefined &&
    weight.pairing.kind === 'none' &&
    weight.sources[0]?.order === undefined &&
    source?.kind === 'file' &&
    source.blocks === undefined &&
    source.format === weight.format &&
    source.offset % FORMATS[source.format].bytes(1, 1) === 0
  );
}

function literal(weight: WeightDecl, constants: ReadonlyMap<string, ConstantVector>): Float32Array | undefined {
  const [source] = weight.sources;
  const constant = source === undefined ? undefined : constants.get(source.tensor);
  if (constant === undefined) return undefined;
  const isVector =
    weight.layout === 'rows' &&
    weight.format === 'f32' &&
    weight.sources.length === 1 &&
    weight.columnScale === undefined;
  if (!isVector || constant.values.length !== source!.rows * weight.k)
    throw new Error(`Weight ${weight.name}: the plan's constant ${constant.name} does not have its shape.`);
  return Float32Array.from(constant.values);
}

/** Whether kernels can read a mapped file: on a CPU they can, on a GPU they read device memory. */
export interface WeightPlanOptions {
  readonly isMapping: boolean;
}

const isSlots = ({ weight }: { readonly weight: WeightDecl }): boolean => weight.slots !== undefined;

/**
 * Places the weights of a plan, those with slots behind all others. Pure: touches no file.
 * Throws UserError where a tensor is missing or has another shape than the plan was compiled for.
 */
export function planWeights(
  weights: readonly WeightDecl[],
  constants: readonly ConstantVector[],
  tensors: ReadonlyMap<string, TensorSource>,
  { isMapping }: WeightPlanOptions = { isMapping: true },
): WeightPlan {
  const byTensor = new Map(constants.map((constant) => [constant.name, constant]));
  const groups = new Map<string, { readonly weight: WeightDecl; readonly names: string[] }>();
  for (const weight of weights) {
    const group = groups.get(keyOf(weight));
    if (group === undefined) groups.set(keyOf(weight), { weight, names: [weight.name] });
    else group.names.push(weight.name);
  }
  const rowMap = rowMaps();
  const placed: PlacedWeight[] = [];
  let offset = 0;
  let mappedBytes = 0;
  const reserve = (bytes: number): number => {
    const at = offset;
    offset = roundUp(offset + bytes, ALIGNMENT);
    return at;
  };
  const inOrder = [...groups.values()].sort((a, b) => Number(isSlots(a)) - Number(isSlots(b)));
  for (const { weight, names } of inOrder) {
    const bytes = packedBytes(weight, rowMap(weight).length);
    const values = literal(weight, byTensor);
    if (values !== undefined) {
      placed.push({ kind: 'literal', names, weight, bytes, offset: reserve(bytes), values });
      continue;
    }
    if (weight.slots !== undefined) {
      placed.push({ kind: 'slots', names, weight, bytes, offset: reserve(bytes) });
      continue;
    }
    const columns = weight.scalesOf?.k ?? weight.k;
    const sources = weight.sources.map(({ tensor, rows }) => requireTensor(tensors, tensor, rows, columns));
    const columnScale =
      weight.columnScale === undefined ? undefined : requireTensor(tensors, weight.columnScale, 1, columns);
    const [first] = sources;
    if (isMapping && isReadable(weight, sources) && first?.kind === 'file') {
      placed.push({ kind: 'mapped', names, weight, bytes, file: first.file, offset: first.offset });
      mappedBytes += bytes;
    } else {
      placed.push({ kind: 'packed', names, weight, bytes, offset: reserve(bytes), sources, columnScale });
    }
  }
  return { weights: placed, mappedBytes, packedBytes: offset };
}
