/** Who proposes what may follow the texts of a model, as options say it. */

export interface DraftOptions {
  /**
   * `suffix`, the default: what followed the last tokens in the text or in former ones; `ngram`: in the text; `mtp`:
   * what the model's own further layers predict; `off`: nobody; otherwise a folder: of a draft model, or of a head.
   */
  readonly draft?: string;
  /** Most drafts of a text in a step; `auto`, the default: as many as pay. */
  readonly draftTokens?: number | 'auto';
}

/** Drafters of the host. */
export const HOST_DRAFTS = ['suffix', 'ngram'] as const;
/** Words that are no folders. */
export const DRAFT_WORDS = [...HOST_DRAFTS, 'mtp', 'off'] as const;

export const DEFAULT_DRAFT: (typeof DRAFT_WORDS)[number] = 'suffix';

/** What a model is opened with so that it drafts for itself, on its device: `mtp` or a folder. */
export function draftModelOf({ draft }: DraftOptions): { readonly draftModel?: string } {
  const isOfHost = draft === undefined || draft === 'off' || HOST_DRAFTS.some((word) => word === draft);
  return isOfHost ? {} : { draftModel: draft };
}
