/** Who proposes what may follow the texts of a model, as options say it. */

export interface DraftOptions {
  /**
   * `suffix`: what followed the last tokens in the text or in former ones; `ngram`: in the text; `off`, the default:
   * nobody; otherwise a folder: of a draft model, or of a draft head.
   */
  readonly draft?: string;
  /** Most drafts of a text in a step; `auto`, the default: as many as pay. */
  readonly draftTokens?: number | 'auto';
}

/** Drafters of the host. */
export const HOST_DRAFTS = ['suffix', 'ngram'] as const;
/** Words that are no folders. */
export const DRAFT_WORDS = [...HOST_DRAFTS, 'off'] as const;

export const DEFAULT_DRAFT: (typeof DRAFT_WORDS)[number] = 'off';

/** The folder that a model is opened with, so that it drafts for itself on its device. */
export function draftModelOf({ draft }: DraftOptions): { readonly draftModel?: string } {
  return draft === undefined || DRAFT_WORDS.some((word) => word === draft) ? {} : { draftModel: draft };
}
