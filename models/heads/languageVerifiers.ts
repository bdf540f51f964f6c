/** Language models that were trained as verifiers: their classes are two tokens. */
import { sigmoid } from './head.js';
import { type Layout, MATH_SHEPHERD, RLHFLOW } from './layout.js';

/** Nothing in the files says that a language model is one of these: a name does. */
export interface LanguageVerifier {
  /** As `--verifier` has it. */
  readonly name: string;
  readonly covers: string;
  /** What names of their folders contain, in lower case. */
  readonly folders: readonly string[];
  readonly layout: Layout;
  /** For users. */
  readonly is: string;
  /** Texts whose last tokens mean right and wrong. */
  readonly verdicts: readonly [right: string, wrong: string];
}

const TWO_TOKENS = { is: 'probability of "+" beside "-"', verdicts: ['+', '-'] } as const;

export const LANGUAGE_VERIFIERS: readonly LanguageVerifier[] = [
  {
    ...TWO_TOKENS,
    name: 'rlhflow',
    covers: 'RLHFlow Llama3.1-8B-PRM-Deepseek-Data and -Mistral-Data',
    folders: ['rlhflow', 'prm-deepseek', 'prm-mistral'],
    layout: RLHFLOW,
  },
  {
    ...TWO_TOKENS,
    name: 'math-shepherd',
    covers: 'math-shepherd-mistral-7b-prm',
    folders: ['shepherd'],
    layout: MATH_SHEPHERD,
  },
];

/** P(right) of the two, by their log-probabilities. */
export const verdictScore = (right: number, wrong: number): number => sigmoid(right - wrong);

/** The verifier that the name of a folder means; undefined where it means none. */
export function verifierByFolder(folder: string): LanguageVerifier | undefined {
  const name = folder.toLowerCase();
  return LANGUAGE_VERIFIERS.find(({ folders }) => folders.some((each) => name.includes(each)));
}
