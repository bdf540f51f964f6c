/** The flags that say who proposes what may follow texts. */
import { existsSync } from 'node:fs';
import type { Command } from 'commander';
import { DEFAULT_DRAFT, DRAFT_WORDS, type DraftOptions } from '../commands/draftOptions.js';
import { MAX_DRAFTS } from '../draft/limits.js';
import { UsageError } from '../errors.js';
import { nearest } from '../system/text.js';
import { type Flags, text, wholeNumber } from './options.js';

export const addDraftFlags = (command: Command): Command =>
  command
    .option(
      '--draft <how>',
      'tokens that are proposed and checked together; no text depends on them: suffix, what followed in this text or ' +
        'others; ngram, in this text; mtp, by its own layers; DIR, a draft model or head; off ' +
        `(docs/speculation.md; default: ${DEFAULT_DRAFT})`,
    )
    .option(
      '--draft-tokens <n>',
      `most of them in a step of a text, 1 to ${MAX_DRAFTS}; auto: as many as pay (default: auto)`,
    );

/** A word, or a folder that is there. Throws UsageError. */
function draftOf(given: string): string {
  if (DRAFT_WORDS.some((word) => word === given) || existsSync(given)) return given;
  const meant = nearest(given, DRAFT_WORDS);
  throw new UsageError(
    `--draft ${given}: expected ${DRAFT_WORDS.join(', ')} or the folder of a draft model`,
    meant === undefined ? 'for example: --draft suffix' : `did you mean --draft ${meant}?`,
  );
}

/** Throws UsageError. */
export function draftFlags(flags: Flags): DraftOptions {
  const [given, tokens] = [text(flags, 'draft'), text(flags, 'draftTokens')];
  const draft = given === undefined ? undefined : draftOf(given);
  const isOff = (draft ?? DEFAULT_DRAFT) === 'off';
  if (tokens !== undefined && isOff)
    throw new UsageError('--draft-tokens: nothing is drafted', 'say who drafts: --draft suffix');
  if (draft !== undefined && !isOff && text(flags, 'beams') !== undefined)
    throw new UsageError('--draft: a search with --beams has no use for drafts', 'leave one of them out');
  return {
    ...(draft === undefined ? {} : { draft }),
    ...(tokens === undefined
      ? {}
      : { draftTokens: tokens === 'auto' ? 'auto' : wholeNumber('--draft-tokens', tokens, 1, MAX_DRAFTS, '4') }),
  };
}
