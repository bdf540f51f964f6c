/** How rows are sent to experts: the reference of every kernel that does. */

/** Most experts that a row is sent to: each has a place among a kernel's parameters. */
export const MAX_CHOSEN = 16;
/** Most experts of a layer. */
export const MAX_EXPERTS = 1024;
/** Most groups that the experts of a layer lie in. */
export const MAX_EXPERT_GROUPS = 32;

/**
 * Groups of experts that follow each other: a row's experts are among those of the `kept` best of `count` groups. A
 * group is worth the sum of its `best` largest experts.
 */
export interface ExpertGroups {
  readonly count: number;
  readonly kept: number;
  readonly best: number;
}

/**
 * How the experts of a row are chosen and weighed. Scores are a softmax of the row's logits, or their sigmoids. With a
 * bias or groups or sigmoids, the experts are those with the largest scores plus bias; else those with the largest
 * logits, which are the same ones. A weight is a score, divided by the sum over the chosen ones if `normalized`, times
 * `factor`.
 */
export interface RoutingRule {
  /** Default: softmax. */
  readonly scores?: 'sigmoid';
  /** Default: one group. */
  readonly groups?: ExpertGroups;
  readonly normalized: boolean;
  /** Default: 1. */
  readonly factor?: number;
  /**
   * Weights in turn (arXiv:2409.12136): that of the s-th expert is its part of a softmax over the experts that are not
   * chosen before it and whose logits z are near its own, m: (m − z) / max(|z|, m) is not above this. Default: weights
   * are those of all experts.
   */
  readonly inTurn?: number;
}

/** Why `groups` are none of `experts` experts of which a row has `chosen`; undefined if they are. */
export function groupsProblem(
  { count, kept, best }: ExpertGroups,
  experts: number,
  chosen: number,
): string | undefined {
  const isCount = (n: number, max: number): boolean => Number.isInteger(n) && n >= 1 && n <= max;
  if (!isCount(count, MAX_EXPERT_GROUPS) || experts % count !== 0)
    return `${count} groups of ${experts} experts: from 1 to ${MAX_EXPERT_GROUPS}, all of one size`;
  const size = experts / count;
  if (!isCount(kept, count)) return `${kept} of ${count} groups: at least 1, at most all`;
  if (!isCount(best, size)) return `a group of ${size} experts is worth the sum of 1 to ${size}, not of ${best}`;
  return chosen > kept * size ? `${chosen} experts of a row in ${kept} groups of ${size}` : undefined;
}

/** The scores of a row's experts. */
export function expertScores(logits: Float64Array, { scores }: Pick<RoutingRule, 'scores'>): Float64Array {
  if (scores === 'sigmoid') return logits.map((z) => 1 / (1 + Math.exp(-z)));
  const top = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const exp = logits.map((z) => Math.exp(z - top));
  const total = exp.reduce((sum, each) => sum + each, 0);
  return exp.map((each) => each / total);
}

/** The experts that a row is sent to, in descending order of what is compared, of equal ones the first. */
export function chosenExperts(
  logits: Float64Array,
  rule: Pick<RoutingRule, 'scores' | 'groups'>,
  chosen: number,
  bias?: Float64Array,
): readonly number[] {
  const { scores, groups } = rule;
  if (scores === undefined && groups === undefined && bias === undefined) return largestOf(logits, chosen);
  const compared = expertScores(logits, rule).map((score, expert) => score + (bias?.[expert] ?? 0));
  if (groups === undefined) return largestOf(compared, chosen);
  const size = compared.length / groups.count;
  const worth = Float64Array.from({ length: groups.count }, (_, group) => {
    const own = compared.subarray(group * size, (group + 1) * size);
    return largestOf(own, groups.best).reduce((sum, at) => sum + own[at]!, 0);
  });
  const kept = new Set(largestOf(worth, groups.kept));
  return largestOf(
    compared.map((each, expert) => (kept.has(Math.floor(expert / size)) ? each : -Infinity)),
    chosen,
  );
}

/** The weights of the chosen experts of a row. */
export function chosenWeights(logits: Float64Array, rule: RoutingRule, experts: readonly number[]): readonly number[] {
  const { normalized, factor = 1, inTurn } = rule;
  if (inTurn !== undefined) return weightsInTurn(logits, inTurn, experts).map((weight) => weight * factor);
  const scores = expertScores(logits, rule);
  const total = normalized ? experts.reduce((sum, expert) => sum + scores[expert]!, 0) : 1;
  return experts.map((expert) => (scores[expert]! / total) * factor);
}

/** The parts of the chosen experts of a row in softmaxes over those that are near them and not chosen before. */
function weightsInTurn(logits: Float64Array, near: number, experts: readonly number[]): readonly number[] {
  return experts.map((expert, slot) => {
    const [top, before] = [logits[expert]!, experts.slice(0, slot)];
    const total = logits.reduce((sum, z, at) => {
      const isFar = (top - z) / Math.max(Math.abs(z), top) > near;
      return isFar || before.includes(at) ? sum : sum + Math.exp(z - top);
    }, 0);
    return 1 / total;
  });
}

/** The columns of the `count` largest numbers, in descending order, of equal ones the first. */
export const largestOf = (row: Float64Array, count: number): readonly number[] =>
  Array.from(row, (value, column) => ({ value, column }))
    .sort((a, b) => b.value - a.value || a.column - b.column)
    .slice(0, count)
    .map(({ column }) => column);

/**
 * Pairs in order of their experts, those of one expert in their own order. `experts`: the expert of each pair. `order`
 * lists pairs, and `places` is its inverse.
 */
export function expertOrder(experts: Float64Array): { readonly order: Int32Array; readonly places: Int32Array } {
  const order = Int32Array.from(experts, (_, pair) => pair).sort((a, b) => experts[a]! - experts[b]! || a - b);
  const places = new Int32Array(order.length);
  order.forEach((pair, at) => {
    places[pair] = at;
  });
  return { order, places };
}

/** Rows in order of experts: those of expert e are starts[e] … starts[e + 1] − 1. `starts` is i32[count + 1]. */
export interface ExpertRows {
  readonly count: number;
  readonly starts: string;
  /**
   * The kernel before is a product of the same rows of experts, which waits for `starts` before the kernels behind it
   * may begin. Default: it may be another.
   */
  readonly areKnown?: true;
}
