/** Divides the weights of a plan among replicas, so that each file is read only once. Pure. */
import { tensorFiles, type PlacedWeight, type WeightPlan } from '../weightPlan.js';

/** Whole weights that lie one after another. */
export interface WeightPart {
  /** The part's weights, at their places in the memory of all. */
  readonly plan: WeightPlan;
  /** Offset in that memory. */
  readonly offset: number;
  readonly bytes: number;
}

const fileBytesOf = (weight: PlacedWeight): number =>
  weight.kind === 'packed' ? tensorFiles(weight).reduce((sum, { own }) => sum + own, 0) : 0;

/** Whether any of it is read from files. Made-up weights are generated on every device. */
export const readsFiles = (plan: WeightPlan): boolean => plan.weights.some((weight) => fileBytesOf(weight) > 0);

/**
 * `count` parts, of about equally many bytes of files, in the order of their places; some are empty where there are few
 * weights.
 */
export function partWeights(plan: WeightPlan, count: number): readonly WeightPart[] {
  const sizes = plan.weights.map(fileBytesOf);
  const total = sizes.reduce((sum, bytes) => sum + bytes, 0);
  const groups = Array.from({ length: count }, (): PlacedWeight[] => []);
  let before = 0;
  plan.weights.forEach((weight, i) => {
    // The part in which the middle of the weight lies.
    const middle = total === 0 ? 0 : (before + sizes[i]! / 2) / total;
    groups[Math.min(count - 1, Math.floor(middle * count))]!.push(weight);
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
