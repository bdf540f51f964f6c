/** Steps of a generator, by requests to an engine. */
import { commonLength } from './commonLength.js';
import { continuePrompt } from '../../engine/promptNames.js';
import type { Discarded } from '../../engine/discard.js';
import type { EndReason, Generated } from '../../engine/request.js';
import type { Detokenizer } from '../../models/tokenizer/detokenizer.js';
import { defined } from '../../system/defined.js';
import { type Ask, PRIORITY, type SearchTexts } from '../asking.js';
import type { SearchOptions } from '../options.js';
import { type Path, type Step, type StepEnd, stepsOf } from '../path.js';
import { maxStepTokensOf } from '../plan.js';
import type { StepAsk, StepWriter } from '../ports.js';
import { asPathFailure } from './failures.js';
import { DEFAULT_STEP_STOP } from './parts.js';
import { continuedTokens, Prompts } from './prompts.js';
import { StepStops } from './stepStops.js';
import { StepTexts, type TextStreams } from './stepTexts.js';

const DEFAULT_TEMPERATURE = 0.8;

/** A generator that is open. */
export interface WriterModel {
  readonly ask: Ask;
  /** Told of texts that nobody goes on with. */
  readonly discard?: ((text: Discarded) => void) | undefined;
  /** Its name in the engine. */
  readonly model: string | undefined;
  readonly texts: SearchTexts;
  readonly detokenizer: TextStreams & Pick<Detokenizer, 'bytesOf'>;
  readonly vocabSize: number;
  /** Longest text, in tokens: its context, or what memory has room for. */
  readonly maxLength: number;
  /** The token that begins texts, where there is one. */
  readonly bos: number | undefined;
  /** All tokens that end texts, and the one that the tokenizer itself calls so. */
  readonly eosTokens: ReadonlySet<number>;
  readonly ownEos: number | undefined;
}

export type WriterOptions = Partial<
  Pick<
    SearchOptions,
    'method' | 'compat' | 'temperature' | 'topP' | 'stepStop' | 'stepTokens' | 'maxStepTokens' | 'ignoreEos' | 'system'
  >
>;

const NO_TOKENS: ReadonlySet<number> = new Set();

export class EngineWriter implements StepWriter {
  private readonly model: WriterModel;
  private readonly options: WriterOptions;
  private readonly prompts: Prompts;
  private readonly texts: StepTexts;
  /** Undefined where steps are numbers of tokens. */
  private readonly stops: StepStops | undefined;
  private readonly eos: ReadonlySet<number>;
  private readonly stopTokens: ReadonlySet<number>;

  constructor(model: WriterModel, options: WriterOptions) {
    const { detokenizer, vocabSize, bos, maxLength } = model;
    this.model = model;
    this.options = options;
    this.prompts = new Prompts(model.texts, { system: options.system, bos, maxLength });
    this.texts = new StepTexts(detokenizer);
    this.stops =
      options.stepTokens === undefined
        ? new StepStops(options.stepStop ?? DEFAULT_STEP_STOP, detokenizer, vocabSize)
        : undefined;
    this.eos = options.ignoreEos === true ? NO_TOKENS : model.eosTokens;
    this.stopTokens = new Set([...this.eos, ...(this.stops?.tokens ?? [])]);
  }

  async write(ask: StepAsk): Promise<Step> {
    const { path, ahead, toEnd, signal } = ask;
    const problem = await this.prompts.of(path.problem);
    signal.throwIfAborted();
    const before = [...stepsOf(path), ...ahead];
    const prompt = ahead.reduce(
      (tokens, step) => continuePrompt(tokens, continuedTokens(step)),
      this.prompts.before(path, problem),
    );
    // There is no room for another token.
    if (prompt.length >= this.model.maxLength) return { text: '', tokens: [], end: 'context' };
    const { tokens, reason } = await this.draw(ask, prompt);
    if (signal.aborted) throw signal.reason;
    const drawn = tokens.map(({ token }) => token);
    const end = this.endOf(reason, drawn, toEnd);
    const isEos = end === 'eos' || end === 'other-eos';
    return this.texts.make(before, { tokens: drawn, end }, drawn.length - (isEos ? 1 : 0), isEos);
  }

  drop(path: Path, siblings: readonly Path[]): void {
    const { discard } = this.model;
    const { parent, step } = path;
    if (discard === undefined || parent === undefined || step === undefined) return;
    void this.prompts.of(path.problem).then(
      (problem) => {
        const from = this.prompts.before(parent, problem).length;
        const shared = siblings.map((each) => commonLength(step.tokens, each.step?.tokens ?? []));
        discard({ tokens: this.prompts.before(path, problem), from: from + Math.max(0, ...shared) });
      },
      // What could not be written has no pages.
      () => undefined,
    );
  }

  /** Rejects with PathFailed where a value is not finite, and where a problem does not fit into memory. */
  private async draw({ path, seed, toEnd, isSpeculative, signal }: StepAsk, prompt: readonly number[]) {
    const { stepTokens } = this.options;
    const maxStepTokens = maxStepTokensOf(this.options);
    const stops = toEnd ? undefined : this.stops;
    const most = toEnd ? maxStepTokens : (stepTokens ?? maxStepTokens);
    let result: Generated | undefined;
    let state = 0;
    try {
      const request = this.model.ask({
        kind: 'generate',
        prompt,
        maxNewTokens: most,
        stopTokens: toEnd ? this.eos : this.stopTokens,
        sampling: this.samplingOf(seed),
        signal,
        isQuiet: true,
        priority: isSpeculative ? PRIORITY.speculative : PRIORITY.step,
        // A token that has all of a separator is a stop token.
        endsAt: stops && ((token) => (state = stops.next(state, token)) === stops.whole),
        ...defined({ model: this.model.model, affinity: path.problem.lane }),
      });
      for await (const event of request) {
        if (event.kind === 'failed') throw event.error;
        if (event.kind === 'end') result = event.result;
      }
    } catch (error) {
      throw asPathFailure(error);
    }
    if (result === undefined) throw new Error('A step has no end.');
    return result;
  }

  private samplingOf(seed: number | undefined) {
    const { temperature = DEFAULT_TEMPERATURE, topP } = this.options;
    return seed === undefined || temperature === 0 ? {} : { temperature, seed, ...defined({ topP }) };
  }

  private endOf(reason: EndReason, tokens: readonly number[], toEnd: boolean): StepEnd {
    switch (reason) {
      case 'eos': {
        const last = tokens.at(-1)!;
        if (!this.eos.has(last)) return 'step';
        return last === (this.model.ownEos ?? last) ? 'eos' : 'other-eos';
      }
      case 'stop':
        return 'step';
      case 'length':
        return this.options.stepTokens !== undefined && !toEnd ? 'step' : 'length';
      case 'context':
      case 'cache':
        return 'context';
      case 'aborted':
      case 'deadline':
        throw new Error('The engine ended a step early.');
      default:
        return reason satisfies never;
    }
  }
}
