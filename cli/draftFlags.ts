/** The flags that say who proposes what may follow texts. */
import type { Command } from 'commander';
import { type DraftOptions, DRAFTS } from '../commands/draftOptions.js';
import { MAX_DRAFTS } from '../draft/drafter.js';
import { UsageError } from '../errors.js';
import { choice, type Flags, text, wholeNumber } from './options.js';

export const addDraftFlags = (command: Command): Command =>
  command
    .option(
      '--draft <how>',
      'tokens that are proposed and computed together; no text depends on them (docs/speculation.md): ngram, what ' +
        'followed the last tokens before; off (default: off)',
    )
    .option(
      '--draft-tokens <n>',
      `most of them in a step of a text, 1 to ${MAX_DRAFTS}; auto: as many as pay (default)`,
    );

/** Throws UsageError. */
export function draftFlags(flags: Flags): DraftOptions {
  const [draft, tokens] = [text(flags, 'draft'), text(flags, 'draftTokens')];
  if (draft !== undefined) choice('--draft', draft, DRAFTS);
  const isOff = draft === undefined || draft === 'off';
  if (tokens !== undefined && isOff)
    throw new UsageError('--draft-tokens: nothing is drafted', 'say who drafts: --draft ngram');
  if (!isOff && text(flags, 'beams') !== undefined)
    throw new UsageError('--draft: a search with --beams has no use for drafts', 'leave one of them out');
  return {
    ...(draft === undefined ? {} : { draft }),
    ...(tokens === undefined
      ? {}
      : { draftTokens: tokens === 'auto' ? 'auto' : wholeNumber('--draft-tokens', tokens, 1, MAX_DRAFTS, '4') }),
  };
}
