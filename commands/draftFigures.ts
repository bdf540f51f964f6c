/** What drafts gave the texts of a model: for summaries and results. */
import type { DraftStats, ModelStats, WrittenCounts } from '../engine/modelStats.js';

export interface DraftFigures extends WrittenCounts {
  /** In the order of their names. */
  readonly drafts: readonly DraftStats[];
}

export const draftFigures = ({ writtenTokens, writtenParts, drafts }: ModelStats): DraftFigures => ({
  ...{ writtenTokens, writtenParts, drafts },
});

/** Sums over all drafters: drafts that steps computed, and those of them that are tokens of texts. */
export interface DraftSums extends WrittenCounts {
  readonly draftedTokens: number;
  readonly acceptedTokens: number;
}

export function draftSums({ drafts, writtenTokens, writtenParts }: DraftFigures): DraftSums {
  const sumOf = (key: 'drafted' | 'accepted'): number =>
    drafts.flatMap((each) => each[key]).reduce((sum, each) => sum + each, 0);
  return { writtenTokens, writtenParts, draftedTokens: sumOf('drafted'), acceptedTokens: sumOf('accepted') };
}
