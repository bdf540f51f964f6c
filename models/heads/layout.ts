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

/**
 * A whole answer, whose score stands at the last token that is no pad: as a conversation, or as a text behind BOS where
 * there is no template.
 */
export interface AnswerLayout {
  readonly kind: 'answer';
  readonly chat: (question: string, answer: string) => readonly Turn[];
  readonly text?: (question: string, answer: string) => string;
}

/** Steps of one text, each of which ends in a separator: one token, which its score stands at. */
export interface TextLayout {
  readonly kind: 'text';
  readonly separator: string;
  /** A step with its separator; `index` from 0. */
  readonly step: (step: string, index: number) => string;
  /** What all steps together are the last turn of; else they stand behind BOS and `head`. */
  readonly chat?: (question: string, steps: string) => readonly Turn[];
  readonly head?: (question: string) => string;
}

/** A turn for each step, each answered by a verdict, one token: the score stands at the token before it. */
export interface TurnsLayout {
  readonly kind: 'turns';
  readonly first: (question: string, step: string) => string;
  /** History always says that a step was right. */
  readonly right: string;
  readonly wrong: string;
}

/** Pieces behind BOS, each of which is encoded by itself. */
export interface PiecesLayout {
  readonly kind: 'pieces';
  readonly head: (question: string) => string;
  readonly step: (step: string) => readonly Piece[];
}

/** Layouts of steps only ever add tokens behind those that there are. */
export type StepLayout = TextLayout | TurnsLayout | PiecesLayout;
export type Layout = AnswerLayout | StepLayout;

const turn = (role: Turn['role'], content: string): Turn => ({ role, content });

/** What the makers of Qwen's verifiers put before a question. */
const QWEN_SYSTEM = 'Please reason step by step, and put your final answer within \\boxed{}.';

export const QWEN_SEPARATOR = '<extra_0>';

export const QWEN_PROCESS: TextLayout = {
  kind: 'text',
  separator: QWEN_SEPARATOR,
  step: (step) => step + QWEN_SEPARATOR,
  chat: (question, steps) => [turn('system', QWEN_SYSTEM), turn('user', question), turn('assistant', steps)],
};

export const QWEN_OUTCOME: AnswerLayout = {
  kind: 'answer',
  chat: (question, answer) => [turn('system', QWEN_SYSTEM), turn('user', question), turn('assistant', answer)],
};

export const OUTCOME: AnswerLayout = {
  kind: 'answer',
  chat: (question, answer) => [turn('user', question), turn('assistant', answer)],
  text: (question, answer) => `${question}\n${answer}`,
};

/** Behind each step a line end that is one token. */
const line = (step: string): readonly Piece[] => [{ text: step }, { text: '\n', isScored: true, isSeparator: true }];

/** The question ends with a line end as well. */
export const SKYWORK: PiecesLayout = { kind: 'pieces', head: (question) => `${question}\n`, step: line };

/** As TRL trains token classifiers. */
export const LINES: PiecesLayout = { kind: 'pieces', head: (question) => question, step: line };

/** Separators between steps have been taken out again, so that each is encoded by itself. */
export const REASON_EVAL: PiecesLayout = {
  kind: 'pieces',
  head: (question) => `Question:\n${question}\nAnswer:\nLet's think step by step.\n`,
  step: (text) => [{ text, isScored: true }],
};

export const RLHFLOW: TurnsLayout = {
  kind: 'turns',
  first: (question, step) => `${question} ${step}`,
  right: '+',
  wrong: '-',
};

/** Steps are numbered lines that end in a Cyrillic word. */
export const MATH_SHEPHERD: TextLayout = {
  kind: 'text',
  separator: 'ки',
  head: (question) => `${question} `,
  step: (step, index) => `${index === 0 ? '' : '\n'}Step ${index + 1}: ${step} ки`,
};
