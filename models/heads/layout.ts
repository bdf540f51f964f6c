/** How a question with the steps of its answer is written for a verifier, and which tokens its scores stand at. */

export interface Turn {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

/** A part of a text that is encoded by itself. */
export interface Piece {
  readonly text: string;
  /** A score stands at its last token. */
  readonly isScored?: boolean;
  /** It must be one token. */
  readonly isSeparator?: boolean;
}

export type Steps = readonly [question: string, steps: readonly string[]];

/** Which tokens of a text have scores. */
export type Rows =
  /** The last one that is no pad. */
  | { readonly kind: 'last' }
  /** Those that are this text, which must be one token: as many as there are steps. */
  | { readonly kind: 'separator'; readonly text: string }
  /** The one before each answer `mark`, a turn of its own: `mark` and `other` are one token each. */
  | { readonly kind: 'before'; readonly mark: string; readonly other: string }
  /** The last ones of scored pieces. */
  | { readonly kind: 'pieces' };

/** `chat`: written by the checkpoint's template, whose special tokens are all there are. `pieces`: behind BOS. */
export interface Layout {
  readonly chat?: (...of: Steps) => readonly Turn[];
  /** Where there is no `chat`, or no template. */
  readonly pieces?: (...of: Steps) => readonly Piece[];
  readonly rows: Rows;
}

const turn = (role: Turn['role'], content: string): Turn => ({ role, content });

/** What the makers of Qwen's verifiers put before a question. */
const QWEN_SYSTEM = 'Please reason step by step, and put your final answer within \\boxed{}.';

export const QWEN_SEPARATOR = '<extra_0>';

/** The separator stands behind each step. */
export const QWEN_PROCESS: Layout = {
  chat: (question, steps) => [
    turn('system', QWEN_SYSTEM),
    turn('user', question),
    turn('assistant', steps.map((step) => step + QWEN_SEPARATOR).join('')),
  ],
  rows: { kind: 'separator', text: QWEN_SEPARATOR },
};

export const QWEN_OUTCOME: Layout = {
  chat: (question, steps) => [turn('system', QWEN_SYSTEM), turn('user', question), turn('assistant', steps.join('\n'))],
  rows: { kind: 'last' },
};

/** A whole answer, as a conversation where there is a template. */
export const OUTCOME: Layout = {
  chat: (question, steps) => [turn('user', question), turn('assistant', steps.join('\n'))],
  pieces: (question, steps) => [{ text: [question, ...steps].join('\n') }],
  rows: { kind: 'last' },
};

/** Each step is encoded by itself, and a line end that is one token behind it. */
const lines = (first: string, steps: readonly string[]): readonly Piece[] => [
  { text: first },
  ...steps.flatMap((step): Piece[] => [{ text: step }, { text: '\n', isScored: true, isSeparator: true }]),
];

/** The question ends with a line end as well. */
export const SKYWORK: Layout = {
  pieces: (question, steps) => lines(`${question}\n`, steps),
  rows: { kind: 'pieces' },
};

/** As TRL trains token classifiers. */
export const LINES: Layout = { pieces: (question, steps) => lines(question, steps), rows: { kind: 'pieces' } };

/** Separators between steps have been taken out again, so that each is encoded by itself. */
export const REASON_EVAL: Layout = {
  pieces: (question, steps) => [
    { text: `Question:\n${question}\nAnswer:\nLet's think step by step.\n` },
    ...steps.map((text) => ({ text, isScored: true })),
  ],
  rows: { kind: 'pieces' },
};

/** Turns of a step and a verdict. History always says that a step was right. */
export const RLHFLOW: Layout = {
  chat: (question, steps) =>
    steps.flatMap((step, i) => [turn('user', i === 0 ? `${question} ${step}` : step), turn('assistant', '+')]),
  rows: { kind: 'before', mark: '+', other: '-' },
};

/** Steps are numbered lines that end in a Cyrillic word. */
export const MATH_SHEPHERD: Layout = {
  pieces: (question, steps) => [
    { text: `${question} ${steps.map((step, i) => `Step ${i + 1}: ${step} ки`).join('\n')}` },
  ],
  rows: { kind: 'separator', text: 'ки' },
};
