/**
 * An adapter as the slots of a plan hold it. For every weight with slots it makes the bytes of one slot: first factors
 * with the norm weights that their rows are multiplied by, second factors in the order of their matrix's columns,
 * ranks padded with zeros. Matrices that the adapter leaves alone have zeros, so that nothing of an earlier adapter
 * stays.
 */
import { UserError } from '../../errors.js';
import type { WeightDecl } from '../../ir/kernel.js';
import { rowMaps, tensorRow } from '../../ir/packing.js';
import type { Plan } from '../../ir/plan.js';
import type { Adapter, LowRank } from '../../models/adapters/adapter.js';
import { quote } from '../../system/json.js';
import { SlotImage } from './slotImage.js';
import { slotsOf } from './slotsOf.js';

/** The values of a norm weight, f32[k]. */
export type VectorOf = (tensor: string, k: number) => Float32Array;

export interface PackedSlot {
  /** Name of the weight. */
  readonly weight: string;
  readonly bytes: Uint8Array;
}

type SlotPlan = Pick<Plan<unknown>, 'weights'>;

const slotWeights = ({ weights }: SlotPlan): readonly WeightDecl[] =>
  weights.filter(({ slots }) => slots !== undefined);

/** Throws UserError where a slot of the plan does not hold all of the adapter. */
export function requireFits({ path, rank, products }: Adapter, plan: SlotPlan): void {
  if (products.size === 0) return;
  const slots = slotsOf(plan);
  if (slots === undefined)
    throw new UserError(
      `${path}: the model was compiled without slots for adapters`,
      'compile it with --adapter-slots 1',
    );
  if (rank > slots.rank)
    throw new UserError(
      `${path}: its rank is ${rank}, and slots of the compiled model have rank ${slots.rank}`,
      `open the model with slots of that rank: --adapter-rank ${rank}`,
    );
  const shapes = new Map<string, { readonly inputs: number; readonly outputs: number }>();
  const depths = new Map<string, number>();
  for (const { slots: own, sources, k } of slotWeights(plan)) {
    if (own?.holds === 'a') for (const { tensor } of sources) depths.set(tensor, k);
    if (own?.holds === 'b') for (const { tensor, rows } of sources) shapes.set(tensor, { inputs: 0, outputs: rows });
  }
  for (const { tensor, inputs, outputs } of products.values()) {
    const rows = shapes.get(tensor)?.outputs;
    const k = depths.get(tensor);
    if (rows === undefined || k === undefined)
      throw new UserError(
        `${path}: it changes ${quote(tensor, 120)}, for which the compiled model has no slot`,
        'merge it into the checkpoint: tilewright merge-adapter',
      );
    if (rows !== outputs || k !== inputs)
      throw new UserError(
        `${path}: it changes ${quote(tensor, 120)} as [${outputs}, ${inputs}], and the model has [${rows}, ${k}]`,
        'is it an adapter of this checkpoint? adapter_config.json names its base',
      );
  }
}

interface Factors {
  readonly product: LowRank;
  readonly a: Float32Array;
  readonly b: Float32Array;
}

/** Reads products, and keeps those of the weights that are packed one after another. */
class Reading {
  private readonly adapter: Adapter;
  private readonly kept = new Map<string, Factors>();

  constructor(adapter: Adapter) {
    this.adapter = adapter;
  }

  /** From now on these are needed. */
  begin(tensors: readonly string[]): void {
    const wanted = new Set(tensors);
    for (const tensor of this.kept.keys()) if (!wanted.has(tensor)) this.kept.delete(tensor);
  }

  of(tensor: string): Factors | undefined {
    const { path, products } = this.adapter;
    const product = products.get(tensor);
    if (product === undefined) return undefined;
    const known = this.kept.get(tensor);
    if (known !== undefined) return known;
    const { a, b } = product.read();
    const { rank, inputs, outputs } = product;
    if (a.length !== rank * inputs || b.length !== outputs * rank)
      throw new Error(`${path}: ${tensor}: ${a.length} and ${b.length} values for rank ${rank}.`);
    const read = { product, a, b };
    this.kept.set(tensor, read);
    return read;
  }
}

/** f32[k]: what the columns of first factors are multiplied by, rounded as packers of matrices round it. */
function columnFactors({ columnScale, columnOffset, k }: WeightDecl, vectorOf: VectorOf): Float32Array | undefined {
  if (columnScale === undefined) return undefined;
  const scale = vectorOf(columnScale, k);
  return columnOffset === undefined ? scale : scale.map((value) => value + columnOffset);
}

function packWeight(weight: WeightDecl, map: Int32Array, reading: Reading, vectorOf: VectorOf): Uint8Array {
  const image = new SlotImage(weight, map.length);
  const factors = columnFactors(weight, vectorOf);
  const { sources, slots, k } = weight;
  /** The first row of each source among all of them, and the source of each row. */
  const starts: number[] = [];
  let rows = 0;
  for (const source of sources) {
    starts.push(rows);
    rows += source.rows;
  }
  const read = sources.map(({ tensor }) => reading.of(tensor));
  let part = 0;
  map.forEach((row, column) => {
    if (row < 0) return;
    // Rows of a source follow one another, but for two that alternate.
    while (row < starts[part]!) part--;
    while (part + 1 < sources.length && row >= starts[part + 1]!) part++;
    const own = read[part];
    if (own === undefined) return;
    const { product, a, b } = own;
    const { rank } = product;
    const within = row - starts[part]!;
    switch (slots!.holds) {
      case 'a':
        if (within < rank) image.set(column, a, within * k, k, factors);
        return;
      case 'b':
        image.set(column, b, tensorRow(sources[part]!, within) * rank, rank);
        return;
      case 'scale':
        image.set(column, Float32Array.of(product.scale), 0, 1);
        return;
      default:
        slots!.holds satisfies never;
    }
  });
  return image.bytes;
}

/**
 * Every weight with slots, one after another, so that one is in memory at a time. The adapter fits the plan
 * (requireFits).
 */
export function* packAdapter(adapter: Adapter, plan: SlotPlan, vectorOf: VectorOf): Generator<PackedSlot> {
  const reading = new Reading(adapter);
  const mapOf = rowMaps();
  for (const weight of slotWeights(plan)) {
    // A first factor comes before the other weights of its kernel.
    if (weight.slots?.holds === 'a') reading.begin(weight.sources.map(({ tensor }) => tensor));
    yield { weight: weight.name, bytes: packWeight(weight, mapOf(weight), reading, vectorOf) };
  }
}
