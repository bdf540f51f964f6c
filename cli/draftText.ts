/** What summaries say of drafts. */
import { type DraftFigures, type DraftSums, draftSums } from '../commands/draftFigures.js';
import { count } from '../system/text.js';

/** `drafts: 1,204 of 3,010 accepted, 2.1 tokens a step`; none where nothing was drafted. */
export const draftLines = ({ draftedTokens, acceptedTokens, writtenTokens, writtenParts }: DraftSums): string[] =>
  draftedTokens > 0
    ? [
        `drafts: ${count(acceptedTokens)} of ${count(draftedTokens)} accepted, ` +
          `${(writtenTokens / writtenParts).toFixed(1)} tokens a step`,
      ]
    : [];

/** By drafter and depth: `suffix: 912 steps of a text, accepted at depth 1 812 of 900, 2 600 of 810`. */
export const depthLines = ({ drafts }: DraftFigures): string[] =>
  drafts.map(({ drafter, rounds, drafted, accepted }) => {
    const depths = drafted.map((many, i) => `${i + 1}: ${count(accepted[i] ?? 0)} of ${count(many)}`);
    return `${drafter} drafts in ${count(rounds)} steps of texts, accepted by depth ${depths.join(', ')}`;
  });

/** Both, as a summary has them. */
export const draftSummary = (figures: DraftFigures, isVerbose: boolean): string[] => [
  ...draftLines(draftSums(figures)),
  ...(isVerbose ? depthLines(figures) : []),
];
