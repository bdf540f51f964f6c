/** Which questions two runs have in common: by number and content, else by content alone. */
import type { Answered, SampleSet } from './readSamples.js';

export interface Pair {
  readonly a: Answered;
  readonly b: Answered;
}

export interface Matched {
  /** In the order of A. */
  readonly pairs: readonly Pair[];
  /** Numbers of questions that only one of them has. */
  readonly onlyA: readonly number[];
  readonly onlyB: readonly number[];
  /** Pairs whose numbers differ: the question sets were numbered differently. */
  readonly renumbered: number;
  /** Questions of equal numbers whose contents differ. */
  readonly otherContent: number;
  /** Pairs whose requests differ: other examples, another template, or another wording. */
  readonly otherPrompt: number;
}

export function matchQuestions(a: SampleSet, b: SampleSet): Matched {
  const partner = new Map<number, Answered>();
  const left: Answered[] = [];
  let otherContent = 0;
  for (const each of b.questions.values()) {
    const same = a.questions.get(each.docId);
    if (same?.content === each.content) partner.set(same.docId, each);
    else left.push(each);
    if (same !== undefined && same.content !== each.content) otherContent++;
  }
  // Questions that come several times are matched in their order.
  const byContent = new Map<string, Answered[]>();
  if (left.length > 0)
    for (const each of [...a.questions.values()].reverse())
      if (!partner.has(each.docId)) {
        const same = byContent.get(each.content);
        if (same === undefined) byContent.set(each.content, [each]);
        else same.push(each);
      }
  const onlyB: number[] = [];
  for (const each of left) {
    const same = byContent.get(each.content)?.pop();
    if (same === undefined) onlyB.push(each.docId);
    else partner.set(same.docId, each);
  }
  const pairs: Pair[] = [];
  const onlyA: number[] = [];
  for (const each of a.questions.values()) {
    const other = partner.get(each.docId);
    if (other === undefined) onlyA.push(each.docId);
    else pairs.push({ a: each, b: other });
  }
  const count = (is: (pair: Pair) => boolean): number => pairs.filter(is).length;
  return {
    pairs,
    onlyA,
    onlyB,
    otherContent,
    renumbered: count((pair) => pair.a.docId !== pair.b.docId),
    otherPrompt: count((pair) => pair.a.prompt !== pair.b.prompt),
  };
}
