/** A bound that the help of commands states; what drafts are takes a while to load. */

/** Most drafts of a text in a step: with its own token they are DECODE_RUN rows (ir/stepping), which decoding takes. */
export const MAX_DRAFTS = 15;
