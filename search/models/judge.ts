/** Scores of paths by a verifier of an engine. What a path has of its parent is neither written nor scored again. */
import type { Discarded } from '../../engine/discard.js';
import { continuePrompt } from '../../engine/promptNames.js';
import { UserError } from '../../errors.js';
import { layOutSteps, type SolutionWriter } from '../../models/heads/solutionTexts.js';
import { type StepTokens, stepTokensOf } from '../../models/heads/stepTokens.js';
import { count } from '../../system/text.js';
import { type Path, type Problem, type Step, stepsOf } from '../path.js';
import { PathFailed, type PathJudge } from '../ports.js';
import { commonLength } from './commonLength.js';
import { type JudgeCounts, NeededTokens } from './needed.js';
import { type PartOptions, partsOf, type PartsOf } from './parts.js';
import { type RowsAsk, scoreRows } from './scoring.js';

/** A verifier that is open. */
export interface JudgeModel extends RowsAsk {
  /** How a question with the steps of its answer becomes tokens. */
  readonly writer: SolutionWriter;
  /** Longest text, in tokens. */
  readonly maxLength: number;
  /** Told of texts that nobody goes on with. */
  readonly discard?: ((text: Discarded) => void) | undefined;
}

/** A path as the verifier reads it. */
interface Written {
  readonly tokens: readonly number[];
  /** Positions of its scores. */
  readonly rows: readonly number[];
  /** Text that the next step goes on with. */
  readonly open: string | undefined;
}

interface PathState {
  readonly written: Written;
  /** Scores of its first rows. */
  scores: readonly number[];
}

const NOTHING: Written = { tokens: [], rows: [], open: undefined };
const WHERE = 'the path';

export class EngineJudge implements PathJudge {
  readonly kind: PathJudge['kind'];
  private readonly model: JudgeModel;
  private readonly partsOf: PartsOf;
  private readonly needed = new NeededTokens();
  /** What stands before the first step of a problem, and before every other step. */
  private readonly questions = new WeakMap<Problem, Promise<readonly number[]>>();
  private frame: Promise<readonly number[]> | undefined;
  private readonly states = new WeakMap<Path, Promise<PathState>>();

  constructor(model: JudgeModel, options: PartOptions) {
    this.model = model;
    this.kind = model.writer.layout.kind === 'answer' ? 'outcome' : 'process';
    this.partsOf = partsOf(options, model.writer.layout);
  }

  /**
   * Rejects with UserError where the verifier's tokenizer or template cannot write what it reads: where a separator is
   * not one token, for example.
   */
  static async open(model: JudgeModel, options: PartOptions): Promise<EngineJudge> {
    try {
      await layOutSteps('the verifier', 'How many?', ['We add 2.', 'So 4.'], model.writer);
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      throw new UserError(error.message, 'use the tokenizer and the chat template of the verifier', { cause: error });
    }
    return new EngineJudge(model, options);
  }

  get counts(): JudgeCounts {
    return this.needed.counts;
  }

  async score(path: Path, ahead: readonly Step[], signal: AbortSignal): Promise<readonly number[]> {
    if (this.kind === 'outcome') return this.scoreAnswer(path, ahead, signal);
    const state = await this.stateOf(path);
    await this.adoptScores(path, state);
    let whole = state.written;
    for (const step of ahead) whole = await this.extended(path.problem, whole, step);
    whole = await this.closed(path.problem, whole);
    const known = state.scores;
    if (whole.rows.length === known.length) return known;
    const asked = await this.ask(path, whole, known.length, signal);
    const scores = [...known, ...asked];
    // A part that the next step goes on with, and what is ahead, are scored again with it.
    state.scores = scores.slice(0, state.written.rows.length);
    return scores;
  }

  /**
   * Computes what stands before the next step, whatever that is: the question, or the frame of a turn. Paths that go on
   * are scored at about the same time, and each would compute it.
   */
  prepare(path: Path): void {
    if (this.kind === 'outcome') return;
    // What cannot be written or computed fails again where a score is asked for.
    this.computeBefore(path).catch(() => undefined);
  }

  private async computeBefore(path: Path): Promise<void> {
    const { written } = await this.stateOf(path);
    if (written.open !== undefined) return;
    const frame = await this.frameAfter(path.problem, written.rows.length);
    if (frame.length === 0) return;
    const tokens = continuePrompt(written.tokens, frame);
    await this.ask(path, { tokens, rows: [tokens.length - 1] }, 0, new AbortController().signal);
  }

  /** Tokens that any next step begins with, behind `index` steps. */
  private frameAfter(problem: Problem, index: number): Promise<readonly number[]> {
    const known = index > 0 ? this.frame : this.questions.get(problem);
    if (known !== undefined) return known;
    const made = this.makeFrame(problem, index);
    if (index === 0) this.questions.set(problem, made);
    else {
      this.frame = made;
      // One problem that cannot be written says nothing of others.
      made.catch(() => (this.frame = undefined));
    }
    return made;
  }

  /** What two different steps begin alike with. */
  private async makeFrame({ problem }: Problem, index: number): Promise<readonly number[]> {
    const writer = await this.stepTokens();
    const [one, other] = [await writer.add(WHERE, problem, 'We', index), await writer.add(WHERE, problem, 'So', index)];
    return one.tokens.slice(0, commonLength(one.tokens, other.tokens));
  }

  drop(path: Path, siblings: readonly Path[]): void {
    if (this.model.discard === undefined || !this.states.has(path)) return;
    // What could not be written has no pages.
    this.discard(path, siblings).catch(() => undefined);
  }

  private async discard(path: Path, siblings: readonly Path[]): Promise<void> {
    const { parent, problem } = path;
    if (parent === undefined) return;
    const { tokens } = (await this.stateOf(path)).written;
    const before = (await this.stateOf(parent)).written;
    // Other problems may have what stands before a question, and the frame of a turn is the parent's.
    const frame = await this.frameAfter(problem, before.rows.length);
    let from = before.tokens.length + frame.length;
    for (const sibling of siblings)
      from = Math.max(from, commonLength(tokens, (await this.stateOf(sibling)).written.tokens));
    this.model.discard?.({ tokens, from });
  }

  private async ask(
    path: Path,
    { tokens, rows }: Pick<Written, 'tokens' | 'rows'>,
    from: number,
    signal: AbortSignal,
  ): Promise<readonly number[]> {
    const { maxLength } = this.model;
    const asked = rows.slice(from);
    const length = asked.reduce((most, row) => Math.max(most, row), 0) + 1;
    if (length > maxLength)
      throw new PathFailed(
        `${WHERE} has ${count(length)} tokens for the verifier, and its context ${count(maxLength)}`,
      );
    signal.throwIfAborted();
    this.needed.ask(path.problem, tokens, length);
    const { lane: affinity } = path.problem;
    const { scores, foundTokens } = await scoreRows(this.model, tokens, asked, { signal, affinity });
    this.needed.answer(foundTokens);
    return scores;
  }

  /** A whole answer, as it was drawn. */
  private async scoreAnswer(path: Path, ahead: readonly Step[], signal: AbortSignal): Promise<readonly number[]> {
    const answer = [...stepsOf(path), ...ahead].map(({ text }) => text).join('');
    const written = await ofThisPath(() => layOutSteps(WHERE, path.problem.problem, [answer], this.model.writer));
    return this.ask(path, written, 0, signal);
  }

  /** Written once, behind what its parent has. */
  private stateOf(path: Path): Promise<PathState> {
    const known = this.states.get(path);
    if (known !== undefined) return known;
    const made = this.makeState(path);
    this.states.set(path, made);
    return made;
  }

  private async makeState({ parent, step, problem }: Path): Promise<PathState> {
    if (parent === undefined || step === undefined) return { written: NOTHING, scores: [] };
    const { written } = await this.stateOf(parent);
    return { written: await this.extended(problem, written, step), scores: [] };
  }

  /** Scores of the nearest path before it that has some. */
  private async adoptScores(path: Path, state: PathState): Promise<void> {
    for (let at = path.parent; state.scores.length === 0 && at !== undefined; at = at.parent)
      ({ scores: state.scores } = await this.stateOf(at));
  }

  private async extended(problem: Problem, before: Written, step: Step): Promise<Written> {
    const { closed, open } = this.partsOf(before.open, step);
    return { ...(await this.add(problem, before, closed)), open };
  }

  /** With the part that is open. */
  private closed(problem: Problem, written: Written): Promise<Written> | Written {
    return written.open === undefined ? written : this.add(problem, written, [written.open]);
  }

  private async add({ problem }: Problem, before: Written, parts: readonly string[]): Promise<Written> {
    if (parts.length === 0) return before;
    const writer = await this.stepTokens();
    const tokens: number[] = [];
    const rows = [...before.rows];
    for (const part of parts) {
      const added = await ofThisPath(() => writer.add(WHERE, problem, part, rows.length));
      rows.push(before.tokens.length + tokens.length + added.row);
      for (const token of added.tokens) tokens.push(token);
    }
    return { tokens: continuePrompt(before.tokens, tokens), rows, open: undefined };
  }

  private stepTokens(): Promise<StepTokens> {
    const { writer } = this.model;
    if (writer.layout.kind === 'answer') throw new Error('A verifier of answers scores no steps.');
    return stepTokensOf('the verifier', writer.layout, writer);
  }
}

/** What cannot be written of a path ends that path. */
async function ofThisPath<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw error instanceof UserError ? new PathFailed(error.message, { cause: error }) : error;
  }
}
