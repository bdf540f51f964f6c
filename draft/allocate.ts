/**
 * Which drafts of all texts a step takes: those that are likeliest to be accepted, as many as give most tokens a
 * second. The step takes longer with each, but by stairs, so all counts are compared.
 */

/** Of each draft of a text the probability that it and all before it on its path are accepted; a parent comes first. */
export type Survivals = readonly number[];

export interface StepWork {
  /** Texts that get a token from the step, whether drafts follow them or not. */
  readonly texts: number;
  /** Most drafts that it has room for. */
  readonly most: number;
  /** Seconds of the step with so many drafts, and of all that is done for it; 0 drafts: of one without. */
  seconds(drafts: number): number;
}

export interface Allocation {
  /** Drafts that the step takes, and the expected tokens and seconds of it. */
  readonly drafts: number;
  readonly tokens: number;
  readonly seconds: number;
  /** Of each text its drafts that are taken: a parent is, where its child is. */
  readonly taken: readonly (readonly number[])[];
}

/** Drafts that are hardly ever accepted are not worth the comparison. */
const LEAST_SURVIVAL = 0.01;

export function allocateDrafts(offers: readonly Survivals[], { texts, most, seconds }: StepWork): Allocation {
  const values: number[] = [];
  for (const offer of offers) for (const survival of offer) if (survival >= LEAST_SURVIVAL) values.push(survival);
  const sorted = Float64Array.from(values).sort().reverse();
  const count = Math.min(sorted.length, Math.max(0, most));
  let best = { drafts: 0, tokens: texts, seconds: seconds(0) };
  let tokens = texts;
  for (let drafts = 1; drafts <= count; drafts++) {
    tokens += sorted[drafts - 1]!;
    // With drafts there is no faster step than with one.
    const needed = seconds(drafts);
    if (tokens * best.seconds > best.tokens * needed) best = { drafts, tokens, seconds: needed };
  }
  return { ...best, taken: takenOf(offers, sorted, best.drafts) };
}

/** The places of the `count` largest. Of equal ones the first are taken, so that parents come with their children. */
function takenOf(offers: readonly Survivals[], sorted: Float64Array, count: number): readonly (readonly number[])[] {
  if (count === 0) return offers.map(() => []);
  const least = sorted[count - 1]!;
  let equals = count - sorted.findIndex((survival) => survival === least);
  return offers.map((offer) => {
    const taken: number[] = [];
    offer.forEach((survival, node) => {
      if (survival > least || (survival === least && equals-- > 0)) taken.push(node);
    });
    return taken;
  });
}
