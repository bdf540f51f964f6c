/**
 * Who proposes what may follow the texts of a model. Drafts are accepted where they are what is drawn anyhow: no text
 * depends on them, and so no seed, journal or identity of a result does.
 */
import type { Drafter } from '../draft/drafter.js';
import { NgramDrafter } from '../draft/ngram.js';
import { SuffixDrafter } from '../draft/suffix.js';
import type { ModelDrafts } from '../engine/speculation.js';
import { defined } from '../system/defined.js';
import { DEFAULT_DRAFT, type DraftOptions, type HOST_DRAFTS } from './draftOptions.js';

const DRAFTERS: Readonly<Record<(typeof HOST_DRAFTS)[number], () => Drafter>> = {
  suffix: () => new SuffixDrafter(),
  ngram: () => new NgramDrafter(),
};

/** For one model: what its drafter learns is its own. Undefined: nothing is proposed. */
export function modelDrafts({ draft = DEFAULT_DRAFT, draftTokens }: DraftOptions): ModelDrafts | undefined {
  if (draft === 'off') return undefined;
  // A model that is opened with a draft of its own proposes on its device.
  const make = Object.hasOwn(DRAFTERS, draft) ? DRAFTERS[draft as keyof typeof DRAFTERS] : undefined;
  return defined({ drafter: make?.(), tokens: draftTokens });
}
