/** What two runs answered to the same questions: log-likelihoods, choices, texts. */
import { argmax } from '../metrics.js';
import { type Answered, lineOf, type Pair, type SampleSet, textsOf } from './readSamples.js';

/** Least, middle and greatest. */
export interface Spread {
  readonly least: number;
  readonly median: number;
  readonly greatest: number;
}

export interface LikelihoodDifference {
  /** Log-likelihoods that are numbers in both runs. */
  readonly count: number;
  /** Of them, those that are equal to the bit. */
  readonly equal: number;
  /** Those left out: NaN or an infinity in one of the runs, which have no difference. */
  readonly notFinite: number;
  /** Mean of the absolute differences, and of B less A, in nats. */
  readonly meanAbsolute: number;
  readonly mean: number;
  /** The largest absolute difference, and where: choices count from 0. */
  readonly worst: { readonly difference: number; readonly docId: number; readonly choice: number } | null;
}

/**
 * By how much the most likely choice exceeds the next, in nats; null: without end, since all others have no probability
 * at all (−inf). JSON cannot express it.
 */
export type Lead = number | null;

export type LeadSpread = { readonly [Name in keyof Spread]: Lead };

/** A question whose most likely choice is another one. */
export interface ChangedChoice {
  /** Its number in A. */
  readonly docId: number;
  /** From 0. */
  readonly a: number;
  readonly b: number;
  /** By how much the chosen log-likelihood exceeds the next, in A and in B. */
  readonly marginA: Lead;
  readonly marginB: Lead;
}

export interface ChoiceDifference {
  /** Questions with several choices whose order is clear in both runs: none of their log-likelihoods is NaN. */
  readonly questions: number;
  readonly changed: readonly ChangedChoice[];
  /** Margins in A of the questions that changed, and of all; null where there are none. */
  readonly marginsOfChanged: LeadSpread | null;
  readonly margins: LeadSpread | null;
}

export interface TextDifference {
  readonly questions: number;
  readonly equal: number;
  /** Place of the first character that differs, from 0, over the questions that differ. */
  readonly first: Spread | null;
  readonly differing: readonly { readonly docId: number; readonly first: number }[];
}

/** Undefined for no numbers. */
function spreadOf(values: readonly number[]): Spread | null {
  if (values.length === 0) return null;
  const sorted = Float64Array.from(values).sort();
  const middle = sorted.length >> 1;
  const median = sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
  return { least: sorted[0]!, median, greatest: sorted.at(-1)! };
}

const hasSameRequests = ({ a, b }: Pair): boolean =>
  a.lls !== undefined && b.lls !== undefined && a.lls.length === b.lls.length;

/** Undefined where none of the questions was scored in both. */
export function compareLikelihoods(pairs: readonly Pair[]): LikelihoodDifference | undefined {
  let count = 0,
    equal = 0,
    notFinite = 0,
    absolute = 0,
    signed = 0;
  let worst: LikelihoodDifference['worst'] = null;
  const scored = pairs.filter(hasSameRequests);
  if (scored.length === 0) return undefined;
  for (const { a, b } of scored)
    for (let choice = 0; choice < a.lls!.length; choice++) {
      const difference = b.lls![choice]! - a.lls![choice]!;
      if (!Number.isFinite(difference)) {
        notFinite++;
        continue;
      }
      count++;
      if (difference === 0) equal++;
      absolute += Math.abs(difference);
      signed += difference;
      if (worst === null || Math.abs(difference) > worst.difference)
        worst = { difference: Math.abs(difference), docId: a.docId, choice };
    }
  return {
    count,
    equal,
    notFinite,
    worst,
    meanAbsolute: count === 0 ? 0 : absolute / count,
    mean: count === 0 ? 0 : signed / count,
  };
}

/**
 * The most likely choice and its lead; undefined where a log-likelihood is NaN or +inf. As for the harness, −inf is
 * below every number, and of equal ones the first is the choice.
 */
function choiceOf({ lls, choices }: Answered): { readonly choice: number; readonly margin: number } | undefined {
  const own = Array.from(lls!.subarray(0, choices));
  if (own.some((each) => Number.isNaN(each) || each === Infinity)) return undefined;
  const choice = argmax(own);
  const next = own.reduce((most, each, i) => (i === choice ? most : Math.max(most, each)), -Infinity);
  return { choice, margin: own[choice] === next ? 0 : own[choice]! - next };
}

const leadOf = (margin: number): Lead => (margin === Infinity ? null : margin);

function leadsOf(margins: readonly number[]): LeadSpread | null {
  const spread = spreadOf(margins);
  return spread && { least: leadOf(spread.least), median: leadOf(spread.median), greatest: leadOf(spread.greatest) };
}

/** Undefined where no question has choices. */
export function compareChoices(pairs: readonly Pair[]): ChoiceDifference | undefined {
  const changed: ChangedChoice[] = [];
  const margins: number[] = [];
  for (const pair of pairs) {
    const { a, b } = pair;
    if (!hasSameRequests(pair) || a.choices < 2 || a.choices !== b.choices) continue;
    const [inA, inB] = [choiceOf(a), choiceOf(b)];
    if (inA === undefined || inB === undefined) continue;
    margins.push(inA.margin);
    if (inA.choice !== inB.choice)
      changed.push({
        docId: a.docId,
        a: inA.choice,
        b: inB.choice,
        marginA: leadOf(inA.margin),
        marginB: leadOf(inB.margin),
      });
  }
  if (margins.length === 0) return undefined;
  return {
    questions: margins.length,
    changed,
    marginsOfChanged: leadsOf(changed.map(({ marginA }) => marginA ?? Infinity)),
    margins: leadsOf(margins),
  };
}

/** In characters: the length of the shorter where it begins the longer; undefined for equal texts. */
function firstDifference(a: readonly string[], b: readonly string[]): number | undefined {
  const request = Array.from({ length: Math.max(a.length, b.length) }, (_, i) => i).find((i) => a[i] !== b[i]);
  if (request === undefined) return undefined;
  const [one, other] = [a[request] ?? '', b[request] ?? ''].map((text) => [...text]) as [string[], string[]];
  const at = one.findIndex((character, i) => character !== other[i]);
  return at < 0 ? one.length : at;
}

/** Undefined where texts were generated in neither. Lines of texts that differ are read again. */
export function compareTexts(pairs: readonly Pair[], a: SampleSet, b: SampleSet): TextDifference | undefined {
  const written = pairs.filter((pair) => pair.a.text !== undefined && pair.b.text !== undefined);
  if (written.length === 0) return undefined;
  const differing = written
    .filter((pair) => pair.a.text !== pair.b.text)
    .map((pair) => {
      const texts = textsOf(lineOf(a.path, pair.a), a.path);
      return { docId: pair.a.docId, first: firstDifference(texts, textsOf(lineOf(b.path, pair.b), b.path)) ?? 0 };
    });
  return {
    questions: written.length,
    equal: written.length - differing.length,
    first: spreadOf(differing.map(({ first }) => first)),
    differing,
  };
}
