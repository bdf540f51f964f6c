/** A path as a generator reads it: the problem's prompt, then the tokens of its steps as they were drawn. */
import { continuePrompt } from '../../engine/promptNames.js';
import { UserError } from '../../errors.js';
import { count } from '../../system/text.js';
import type { ChatTurn, SearchTexts } from '../asking.js';
import type { Path, Problem, Step } from '../path.js';
import { PathFailed } from '../ports.js';
import { SYSTEM_PROMPT } from './systemPrompt.js';

/** `--system` with this has no system turn. */
const NO_SYSTEM = 'none';

export interface PromptOptions {
  /** What stands before a problem; `none`: nothing. Default: search-and-learn's words. */
  readonly system?: string | undefined;
  /** The token that begins texts without a template. */
  readonly bos: number | undefined;
  /** Longest text of the model, in tokens. */
  readonly maxLength: number;
}

/** Prompts of problems, each of which is written once. */
export class Prompts {
  private readonly texts: SearchTexts;
  private readonly options: PromptOptions;
  private readonly known = new WeakMap<Problem, Promise<readonly number[]>>();
  private readonly ofPaths = new WeakMap<Path, readonly number[]>();

  constructor(texts: SearchTexts, options: PromptOptions) {
    this.texts = texts;
    this.options = options;
  }

  /** Rejects with PathFailed where it is longer than the model's context, or the template does not write it. */
  of(problem: Problem): Promise<readonly number[]> {
    const known = this.known.get(problem);
    if (known !== undefined) return known;
    const written = this.write(problem.problem);
    this.known.set(problem, written);
    return written;
  }

  /** What a step of the path continues, made once for all its children. `problem`: the prompt of its problem. */
  before(path: Path, problem: readonly number[]): readonly number[] {
    const known = this.ofPaths.get(path);
    if (known !== undefined) return known;
    const { parent, step } = path;
    const tokens =
      parent === undefined || step === undefined
        ? continuePrompt([], problem)
        : continuePrompt(this.before(parent, problem), continuedTokens(step));
    this.ofPaths.set(path, tokens);
    return tokens;
  }

  private async write(problem: string): Promise<readonly number[]> {
    const { maxLength, system = SYSTEM_PROMPT } = this.options;
    const tokens = await this.tokensOf(system === NO_SYSTEM ? undefined : system, problem);
    if (tokens.length >= maxLength)
      throw new PathFailed(
        `the problem has ${count(tokens.length)} tokens with its prompt, and the model's context ${count(maxLength)}`,
      );
    return tokens;
  }

  /** A template that refuses a system turn gets its text at the beginning of the user's. */
  private async tokensOf(system: string | undefined, problem: string): Promise<readonly number[]> {
    const { texts } = this;
    const { bos } = this.options;
    const user = system === undefined ? problem : `${system}\n\n${problem}`;
    if (!texts.hasTemplate) return [...(bos === undefined ? [] : [bos]), ...(await texts.encodeWritten(`${user}\n\n`))];
    const together: readonly ChatTurn[] = [{ role: 'user', content: user }];
    const turns: readonly ChatTurn[] = [
      { role: 'system', content: system ?? '' },
      { role: 'user', content: problem },
    ];
    try {
      const own = system === undefined ? together : turns;
      return await texts.writeTurns(own, true).catch(() => texts.writeTurns(together, true));
    } catch (error) {
      throw error instanceof UserError ? new PathFailed(error.message, { cause: error }) : error;
    }
  }
}

/** Tokens of a step that others follow: without one that would end the text. */
export const continuedTokens = ({ tokens, end }: Step): readonly number[] =>
  end === 'eos' || end === 'other-eos' ? tokens.slice(0, -1) : tokens;
