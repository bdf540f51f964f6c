/** Divides the weights of a plan among replicas, so that each file is read only once. Pure. */
import { isCodeFormat } from '../../ir/storage.js';
import { fileRanges, type TensorSource } from '../tensorSource.js';
import { type PlacedWeight, type WeightPlan } from '../weightPlan.js';

/** Whole weights that lie one after another. */
export interface WeightPart {
  /** The part's weights, at their places in the memory of all. */
  readonly plan: WeightPlan;
  /** Offset in that memory. */
  readonly offset: number;
  readonly bytes: number;
}

const tensorsOf = (weight: PlacedWeight): readonly TensorSource[] => (weight.kind === 'packed' ? weight.sources : []);

/** Bytes of files that weights are made of. What several are made of counts once. */
function fileBytesOf(weights: readonly PlacedWeight[]): number {
  const factors = weights.flatMap((weight) =>
    weight.kind === 'packed' && weight.columnScale !== undefined ? [weight.columnScale] : [],
  );
  return [...new Set([...weights.flatMap(tensorsOf), ...factors])]
    .flatMap(fileRanges)
    .reduce((sum, { own }) => sum + own, 0);
}

/** Whether any of it is read from files. Made-up weights are generated on every device. */
export const readsFiles = (plan: WeightPlan): boolean => fileBytesOf(plan.weights) > 0;

/** Codes and scales of a kernel are no further from each other. */
const NEAR = 8;

/** Runs of weights: codes are in one with the scales of their rows, which are found in the same reading. */
function runsOf(weights: readonly PlacedWeight[]): readonly (readonly PlacedWeight[])[] {
  const scales = new Map<TensorSource, number>();
  // The first weight that the weight at each place must be in a run with.
  const firsts = weights.map((weight, i) => {
    const { scalesOf } = weight.weight;
    const tensors = tensorsOf(weight);
    if (scalesOf !== undefined) for (const tensor of tensors) scales.set(tensor, i);
    const before = tensors.flatMap((tensor) => scales.get(tensor) ?? []).filter((at) => i - at <= NEAR);
    return isCodeFormat(weight.weight.format) ? Math.min(i, ...before) : i;
  });
  const runs: PlacedWeight[][] = [];
  for (let i = weights.length - 1, end = weights.length, begin = end; i >= 0; i--) {
    begin = Math.min(begin, firsts[i]!);
    if (i > begin) continue;
    runs.push(weights.slice(i, end));
    end = i;
  }
  return runs.reverse();
}

/**
 * `count` parts, of about equally many bytes of files, in the order of their places; some are empty where there are few
 * weights. Codes and the scales of their rows are in one part.
 */
export function partWeights(plan: WeightPlan, count: number): readonly WeightPart[] {
  const runs = runsOf(plan.weights);
  const sizes = runs.map(fileBytesOf);
  const total = sizes.reduce((sum, bytes) => sum + bytes, 0);
  const groups = Array.from({ length: count }, (): PlacedWeight[] => []);
  let before = 0;
  runs.forEach((run, i) => {
    // The part in which the middle of the run lies.
    const middle = total === 0 ? 0 : (before + sizes[i]! / 2) / total;
    groups[Math.min(count - 1, Math.floor(middle * count))]!.push(...run);
    before += sizes[i]!;
  });
  const startOf = (group: readonly PlacedWeight[]): number | undefined => {
    const [first] = group;
    return first === undefined || first.kind === 'mapped' ? undefined : first.offset;
  };
  let end = plan.packedBytes;
  const offsets: number[] = [];
  for (let i = count - 1; i >= 0; i--) offsets[i] = end = startOf(groups[i]!) ?? end;
  return groups.map((weights, i) => ({
    plan: { ...plan, weights },
    offset: offsets[i]!,
    bytes: (offsets[i + 1] ?? plan.packedBytes) - offsets[i]!,
  }));
}
