/** What a chat completion says that was searched for. */
import type { ProblemResult } from '../../search/result.js';
import type { SearchRequest } from './body.js';
import type { ModelUse } from './clientAsk.js';

const NO_USE: ModelUse = { requests: 0, promptTokens: 0, cachedTokens: 0, generatedTokens: 0 };

export class SearchAnswer {
  private readonly request: SearchRequest;
  private readonly uses: ReadonlyMap<string, ModelUse>;
  private readonly created = Math.floor(Date.now() / 1000);
  private readonly id: string;

  /** `uses`: of each model, by its name in the engine. */
  constructor(request: SearchRequest, id: string, uses: ReadonlyMap<string, ModelUse>) {
    this.request = request;
    this.uses = uses;
    this.id = `chatcmpl-${id}`;
  }

  whole(result: ProblemResult): object {
    const { content, finishReason } = pickOf(result);
    const message = { role: 'assistant', content, refusal: null };
    const choice = { index: 0, message, logprobs: null, finish_reason: finishReason, stop_reason: null };
    return { ...this.head('chat.completion', [choice]), usage: this.usage(result), search: this.search(result) };
  }

  /** Of a stream, once the search has ended. */
  *chunks(result: ProblemResult): Generator<object> {
    const { content, finishReason } = pickOf(result);
    yield this.chunk({ role: 'assistant', content: '' }, null);
    yield this.chunk({ content }, null);
    yield { ...this.chunk({}, finishReason), search: this.search(result) };
    if (this.request.endsWithUsage) yield { ...this.head('chat.completion.chunk', []), usage: this.usage(result) };
  }

  private chunk(delta: object, finishReason: string | null): object {
    const choice = { index: 0, delta, logprobs: null, finish_reason: finishReason, stop_reason: null };
    return this.head('chat.completion.chunk', [choice]);
  }

  private head(object: string, choices: readonly object[]): object {
    const { model, options } = this.request;
    const { id, created } = this;
    const own = { id, object, created, model: model.names[0], system_fingerprint: model.fingerprint };
    return { ...own, seed: options.seed, choices };
  }

  /** Of the generator: tokens that the result is made of, the same however the work was done. */
  private usage({ drawnTokens }: ProblemResult): object {
    const { promptTokens, cachedTokens } = this.uses.get(this.request.model.key) ?? NO_USE;
    return {
      prompt_tokens: promptTokens,
      completion_tokens: drawnTokens,
      total_tokens: promptTokens + drawnTokens,
      prompt_tokens_details: { cached_tokens: cachedTokens },
    };
  }

  private search(result: ProblemResult): object {
    const { model, verifier, options } = this.request;
    const used = ({ key, names, fingerprint }: SearchRequest['model']): object => {
      const use = this.uses.get(key) ?? NO_USE;
      return {
        model: names[0],
        system_fingerprint: fingerprint,
        requests: use.requests,
        prompt_tokens: use.promptTokens,
        cached_tokens: use.cachedTokens,
        generated_tokens: use.generatedTokens,
      };
    };
    return {
      method: options.method,
      picked: result.picked,
      candidates: result.candidates.map(({ text, isCompleted, scores, aggregate, tokens }) => ({
        content: text,
        finish_reason: isCompleted ? 'stop' : 'length',
        scores,
        score: Number.isFinite(aggregate) ? aggregate : null,
        tokens,
      })),
      notes: result.notes,
      drawn_steps: result.drawnSteps,
      drawn_tokens: result.drawnTokens,
      usage: { generator: used(model), ...(verifier === undefined ? {} : { verifier: used(verifier) }) },
    };
  }
}

/** The text that is the answer; none where no path has one, which `notes` says. */
function pickOf({ candidates, picked }: ProblemResult): { readonly content: string; readonly finishReason: string } {
  const candidate = picked === null ? undefined : candidates[picked];
  return { content: candidate?.text ?? '', finishReason: candidate?.isCompleted === true ? 'stop' : 'length' };
}
