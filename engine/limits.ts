/** Bounds and names that the help of a command states; schemas that hold them take a while to load. */

/** Tokens of a page. Attention takes keys in groups of this size, so no group of a path lies in two pages. */
export const PAGE_TOKENS = 16;
/** Most tokens to generate, where a request does not say. */
export const DEFAULT_NEW_TOKENS = 128;
/** Continuations of one prompt. */
export const MAX_SAMPLES = 128;
export const MAX_TEMPERATURE = 100;
export const MAX_TOP_LOGPROBS = 20;
/** Rows of a request at one position: those that a step of the smallest plan has. */
export const MAX_ROWS_AT = 32;
/** The next tokens of a path are found among its most likely ones. */
export const MAX_BEAMS = MAX_TOP_LOGPROBS;

/** Variables of a template that have places of their own beside the messages. */
export const OWN_VARIABLES: readonly string[] = ['messages', 'tools', 'documents', 'add_generation_prompt'];

/** The variable among further ones that has a place of its own; undefined where there is none. */
export const ownVariable = (names: Iterable<string>): string | undefined =>
  [...names].find((name) => OWN_VARIABLES.includes(name));
