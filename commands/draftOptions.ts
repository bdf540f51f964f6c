/** Who proposes what may follow the texts of a model, as options say it. */

export interface DraftOptions {
  /** `ngram`: what followed the last tokens earlier in the text; `off`: nobody, the default. */
  readonly draft?: string;
  /** Most drafts of a text in a step; `auto`, the default: as many as pay. */
  readonly draftTokens?: number | 'auto';
}

/** Drafters of the host. */
export const HOST_DRAFTS = ['ngram'] as const;
export const DRAFTS = [...HOST_DRAFTS, 'off'] as const;

export const DEFAULT_DRAFT: (typeof DRAFTS)[number] = 'off';
