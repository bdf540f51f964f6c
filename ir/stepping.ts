/**
 * Steps in terms of new tokens, keys and rows. This is the one place that maps them to the extents of the function
 * `step`.
 */
import { defined } from '../system/defined.js';
import type { StateDecl } from './function.js';
import { extentIn, type Extents } from './extents.js';
import { MAX_SAMPLE_VOCAB } from './sampleInputs.js';
import { MAX_KEPT } from './scan.js';
import type { Bucket } from './plan.js';

export const NEW_TOKENS = 'T';
export const KEYS = 'C';
const STEP_ROWS = 'R';
/** Rows whose tokens are chosen from their logits, and entries of their lists (ir/sampleInputs). */
const FILTERED_ROWS = 'F';
export const ENTRIES = 'E';
/** Masks of filtered rows: at most one for each. */
const MASKS = 'M';

/** Rows of what convolutions of recurrent layers have seen last, which a call writes. */
export const KEPT_TAILS = 'S';

/** The extent of the function `copy`, and every call of it. More rows are copied by several. */
export const COPIED_ROWS = 'N';
export const COPY_BUCKET: Bucket = { extents: { [COPIED_ROWS]: 1024 }, longest: 1 };

export interface StepSize {
  /** New tokens. */
  readonly tokens: number;
  /** Entries of the list of keys: the lengths of all paths. */
  readonly keys: number;
  /** Rows with a log-probability. */
  readonly rows: number;
  /** The first rows, which are filtered, and entries of their lists; absent where the function filters none. */
  readonly filtered?: number;
  readonly entries?: number;
  /** Rows of tails of convolutions that are written; absent where there are none. */
  readonly tails?: number;
}

export const stepExtents = ({ tokens, keys, rows, filtered, entries, tails }: StepSize): Extents => ({
  [NEW_TOKENS]: tokens,
  [KEYS]: keys,
  [STEP_ROWS]: rows,
  ...defined({ [FILTERED_ROWS]: filtered, [ENTRIES]: entries, [MASKS]: filtered, [KEPT_TAILS]: tails }),
});

export const stepSize = (extents: Extents): StepSize => ({
  tokens: extentIn(NEW_TOKENS, extents),
  keys: extentIn(KEYS, extents),
  rows: extentIn(STEP_ROWS, extents),
  ...defined({ filtered: extents[FILTERED_ROWS], entries: extents[ENTRIES], tails: extents[KEPT_TAILS] }),
});

/** The state that keeps the tokens that the last call drew, and its rows. */
export const LAST_TOKENS = 'last_tokens';
export const LAST_TOKEN_ROWS = 1024;

/** What the names of states begin with that belong to the function `draft`. */
export const DRAFT_STATES = 'draft_';
/** The state that keeps the tokens that its last call drew. It has LAST_TOKEN_ROWS rows too. */
export const DRAFT_LAST_TOKENS = 'draft_last_tokens';

/** The state with what `step` computes of each token for a draft head, in rows as those of keys and values. */
export const DRAFT_FEATURES = 'draft_x';

/** Whether a state keeps drawn tokens. */
const keepsDrawn = ({ name }: Pick<StateDecl, 'name'>): boolean => name === LAST_TOKENS || name === DRAFT_LAST_TOKENS;

/**
 * Names of what recurrent layers keep: the states of the scan `index`, and what the convolution `index` of a kind has
 * seen last.
 */
export const stateName = (index: number): string => `state_${index}`;
export const tailName = (part: string, index: number): string => `tail_${part}_${index}`;
const isRecurrent = ({ name }: Pick<StateDecl, 'name'>): boolean => /^(?:state|tail)_/.test(name);

/** Whether a state has a row for each token whose keys and values are kept. */
export const isPaged = (state: Pick<StateDecl, 'name'>): boolean => !keepsDrawn(state) && !isRecurrent(state);

/** The state of a model that keeps neither keys nor values: its pages have tokens. */
export const PATH_TOKENS = 'path_tokens';

/**
 * Inputs of steps of recurrent layers (decision 69). A tree of tokens is a part with its branches; `subtreeEnd` says
 * which tokens go on from which.
 */
export const STEP_STATES = {
  /** i32[T]: new tokens before each one on its path. */
  fresh: 'fresh',
  /** i32[T]: the row of the tails that has the token so many before, where that is none of the call. */
  tailBack: (back: number): string => `tailBack${back - 1}`,
  /** i32[S]: rows of tails that are written, and what goes there: that of a token if isTailNew is 1, or another row. */
  tailSlot: 'tailSlot',
  tailToken: 'tailToken',
  tailEntry: 'tailEntry',
  isTailNew: 'isTailNew',
  /** i32[T]: the row of the states that a tree goes on from; −1: zeros. Where those behind a token go; −1: nowhere. */
  stateFrom: 'stateFrom',
  stateTo: 'stateTo',
  stateAlso: 'stateAlso',
} as const;

/** The most tokens that a model keeps keys and values of; undefined if it only scores. */
export const cacheTokensOf = ({
  plan: { states },
  cacheTokens = Infinity,
}: {
  readonly plan: { readonly states: readonly Pick<StateDecl, 'name' | 'rows'>[] };
  readonly cacheTokens?: number | undefined;
}): number | undefined => {
  const kept = states.filter(isPaged);
  return kept.length === 0 ? undefined : Math.min(cacheTokens, ...kept.map(({ rows }) => rows));
};

/** Whether steps of a plan take tokens that the call before them has drawn. */
export const takesLastTokens = ({ states }: { readonly states: readonly { readonly name: string }[] }): boolean =>
  states.some(({ name }) => name === LAST_TOKENS);

/** The inputs of such a step that is given all its tokens, and keeps none. `filtered`: as many rows are. */
export const nothingFed = (tokens: number, rows: number, filtered?: number) => ({
  isFed: new Int32Array(tokens),
  feed: new Int32Array(tokens),
  keep: new Int32Array(rows).fill(-1),
  ...defined({ keepFiltered: filtered === undefined ? undefined : new Int32Array(filtered).fill(-1) }),
});

/** Most entries of the list of keys of steps, which stays from call to call: 512 sequences of 8,000 tokens. */
export const MAX_KEYS = 1 << 22;
/** Most of those that are listed anew for a call, as scores do; and of calls that schedules are measured with. */
export const FRESH_KEYS = 1 << 19;

/** Most filtered rows of a call: the logits of 128,256 tokens for each are 131 MB of a device's memory. */
const MAX_FILTERED_ROWS = 256;
/** Most entries of the lists of a call: those of one row always fit. */
export const MAX_ENTRIES = MAX_SAMPLE_VOCAB;

/** Most new tokens of a path in a call that only continues paths: a token, or a draft with it. */
export const DECODE_RUN = 16;
/** The same of a call in which no path has drafts: its kernels need not look for queries that read the same keys. */
const PLAIN_RUN = 1;
/** Steps of so many tokens have the same kernels for prompts and for drafts. */
const MAX_FEW = 64;
/** Keys of a path that is continued, where schedules are measured. */
const DECODE_KEYS = 1024;

/**
 * Most tokens of a call of `draft`, if a smaller size of prompts is known: long prompts are drafted behind in pieces.
 */
const MAX_DRAFT_TOKENS = 2560;

/** The sizes of `draft`: those of decoding, and of few of the `prompts`. */
export const draftBuckets = (prompts: readonly Bucket[], decode: readonly number[] = []): readonly Bucket[] =>
  stepBuckets(
    prompts.filter(({ extents }, i) => i === 0 || extentIn(NEW_TOKENS, extents) <= MAX_DRAFT_TOKENS),
    decode,
  );

/** What steps have room for beside tokens. */
export interface StepRoom {
  /** Filtered rows. Default: none. */
  readonly isFiltering?: boolean;
  /** Rows of states of recurrent layers, and those of a convolution's tail behind each. Default: none. */
  readonly states?: { readonly rows: number; readonly tails: number };
}

/**
 * Steps of a few tokens, and of the sizes `decode` in which paths only go on, beside the sizes of `prompts`. Where
 * there are sizes of decoding, kernels tell paths with drafts from paths without: each size is there once for steps
 * without. Ascending; of one size, that with the shortest runs first.
 */
export function stepBuckets(
  prompts: readonly Bucket[],
  decode: readonly number[] = [],
  { isFiltering = false, states }: StepRoom = {},
): readonly Bucket[] {
  const sizes = prompts.map(({ extents, longest }) => ({ tokens: extentIn(NEW_TOKENS, extents), longest }));
  const [least, most] = [
    Math.min(...sizes.map(({ tokens }) => tokens)),
    Math.max(...sizes.map(({ tokens }) => tokens)),
  ];
  const few = [1, 2, 4, 8, 16, 32, MAX_FEW]
    .filter((tokens) => tokens < least)
    .map((tokens) => ({ tokens, longest: DECODE_KEYS }));
  const going = decode
    .filter((tokens) => tokens > least && tokens <= most)
    .map((tokens) => ({ tokens, longest: DECODE_KEYS, run: DECODE_RUN }));
  const small = sizes.filter(({ tokens }) => tokens <= MAX_FEW).map(({ tokens }) => ({ tokens, longest: DECODE_KEYS }));
  const plain = (decode.length === 0 ? [] : [...few.slice(1), ...small, ...going]).map((size) => ({
    ...size,
    run: PLAIN_RUN,
  }));
  return [...plain, ...few, ...going, ...sizes]
    .sort((a, b) => a.tokens - b.tokens)
    .map(({ tokens, ...paths }) => ({
      extents: stepExtents({
        tokens,
        keys: MAX_KEYS,
        rows: tokens,
        ...(isFiltering ? { filtered: Math.min(tokens, MAX_FILTERED_ROWS), entries: MAX_ENTRIES } : {}),
        ...(states === undefined ? {} : { tails: Math.min(MAX_KEPT * tokens, states.rows) * states.tails }),
      }),
      ...paths,
    }));
}
