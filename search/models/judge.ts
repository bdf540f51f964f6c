/** Scores of paths by a verifier of an engine. */
import { layOutSteps, type SolutionWriter } from '../../models/heads/solutionTexts.js';
import { UserError } from '../../errors.js';
import type { SearchOptions } from '../options.js';
import { type Path, type Step, stepsOf } from '../path.js';
import { PathFailed, type PathJudge } from '../ports.js';
import { type RowsAsk, scoreRows } from './scoring.js';
import { DEFAULT_STEP_STOP } from './writer.js';

/** A verifier that is open. */
export interface JudgeModel extends RowsAsk {
  /** How a question with the steps of its answer becomes tokens. */
  readonly writer: SolutionWriter;
  /** Longest text, in tokens. */
  readonly maxLength: number;
}

export type JudgeOptions = Pick<SearchOptions, 'stepStop' | 'stepTokens' | 'compat'>;

export class EngineJudge implements PathJudge {
  readonly kind: PathJudge['kind'];
  private readonly model: JudgeModel;
  private readonly separator: string | undefined;

  constructor(model: JudgeModel, options: JudgeOptions) {
    this.model = model;
    this.kind = model.writer.layout.kind === 'answer' ? 'outcome' : 'process';
    this.separator = options.stepTokens === undefined ? (options.stepStop ?? DEFAULT_STEP_STOP) : undefined;
  }

  async score(path: Path, ahead: readonly Step[], signal: AbortSignal): Promise<readonly number[]> {
    const { writer, maxLength } = this.model;
    const texts = [...stepsOf(path), ...ahead].map(({ text }) => text);
    const steps = this.kind === 'outcome' ? [texts.join('')] : texts.flatMap((text) => this.partsOf(text));
    if (steps.length === 0) return [];
    const { tokens, rows } = await layOutSteps('the path', path.problem.problem, steps, writer).catch(
      (error: unknown) => {
        throw error instanceof UserError ? new PathFailed(error.message, { cause: error }) : error;
      },
    );
    if (tokens.length > maxLength)
      throw new PathFailed(`the path has ${tokens.length} tokens, and the verifier's context ${maxLength}`);
    const { lane: affinity } = path.problem;
    return (await scoreRows(this.model, tokens, rows, { signal, affinity })).scores;
  }

  /** Steps of a text without their separators. */
  private partsOf(text: string): readonly string[] {
    if (this.separator === undefined) return text === '' ? [] : [text];
    const parts = text.split(this.separator);
    if (parts.at(-1) === '') parts.pop();
    return parts;
  }
}
