/** POST /v1/completions: prompts go on as texts; and what clients ask beside. */
import { type ChoiceListener, Choices } from '../choices.js';
import type { EventStream, Exchange, Route } from '../exchange.js';
import { askOf, type ModelClient } from '../models.js';
import { engineOptions } from '../sampling.js';
import { answerHead, StreamedAnswer, usageJson, WholeAnswer } from './answer.js';
import { type Completion, readCompletion } from './body.js';
import { AnsweredPrompt } from './prompt.js';
import { tokenRoutes } from './tokenRoutes.js';

export const completionRoutes = (client: ModelClient): readonly Route[] => [
  {
    method: 'POST',
    path: '/v1/completions',
    handle: async (exchange) => {
      const completion = await readCompletion(client, await exchange.json());
      if (exchange.signal.aborted) return;
      const answer = completion.options.isStreamed ? stream : reply;
      await answer(client, completion, exchange);
    },
  },
  ...tokenRoutes(client),
];

async function reply(client: ModelClient, completion: Completion, exchange: Exchange): Promise<void> {
  const head = answerHead(completion, exchange.id);
  const answers: WholeAnswer[] = [];
  const running = new RunningPrompts(client, completion, (prompt) => {
    const answer = new WholeAnswer(completion, prompt);
    answers.push(answer);
    return answer;
  });
  const usages = await running.ended(exchange.signal);
  const choices = answers.map((answer, i) => answer.json(i * completion.options.n));
  exchange.replyText(200, `${head}${choices.join()}],"usage":${usageJson(usages)}}`, 'application/json');
}

async function stream(client: ModelClient, completion: Completion, exchange: Exchange): Promise<void> {
  const { n, endsWithUsage } = completion.options;
  const head = answerHead(completion, exchange.id);
  let opened: EventStream | undefined;
  // What fails before the first chunk is an error over HTTP.
  const open = (): EventStream => (opened ??= exchange.stream());
  try {
    const answers: StreamedAnswer[] = [];
    const running = new RunningPrompts(client, completion, (prompt) => {
      const answer = new StreamedAnswer(completion, prompt, head, answers.length * n, open);
      answers.push(answer);
      return answer;
    });
    for (const answer of answers) answer.usages = () => running.usages;
    const usages = await running.ended(exchange.signal);
    if (endsWithUsage) open().send(`${head}],"usage":${usageJson(usages)}}`);
    open().end();
  } catch (error) {
    if (opened === undefined) throw error;
    opened.fail(error);
  }
}

/** The prompts of a request on their way. One that fails ends the others. */
class RunningPrompts {
  readonly #all: Choices[] = [];

  /** Throws what `submit` throws; nothing is on its way then. */
  constructor(client: ModelClient, completion: Completion, listen: (prompt: AnsweredPrompt) => ChoiceListener) {
    const { drawn, grammar, model, options } = completion;
    const text = { ...options, eosTokenIds: model.eosTokenIds };
    try {
      for (const each of completion.prompts) {
        const { tokens: prompt, maxTokens } = each;
        const answered = new AnsweredPrompt(completion, each);
        const { rows } = answered;
        const request = {
          ...({ kind: 'generate', ...askOf(model), prompt, n: drawn } as const),
          ...engineOptions(options, model, maxTokens, grammar !== undefined),
          ...(grammar === undefined ? {} : { grammar }),
          ...(rows === undefined ? {} : { rows }),
        };
        this.#all.push(
          new Choices(client, request, { ...text, openText: () => answered.openText() }, listen(answered)),
        );
      }
    } catch (error) {
      this.#cancel();
      throw error;
    }
  }

  get usages() {
    return this.#all.map(({ usage }) => usage);
  }

  /** What they used, once all have ended. Ends them where the client is gone. */
  async ended(signal: AbortSignal) {
    const cancel = (): void => this.#cancel();
    signal.addEventListener('abort', cancel, { once: true });
    try {
      if (signal.aborted) cancel();
      return await Promise.all(this.#all.map(({ ended }) => ended));
    } catch (error) {
      cancel();
      throw error;
    } finally {
      signal.removeEventListener('abort', cancel);
    }
  }

  #cancel(): void {
    for (const each of this.#all) each.cancel();
  }
}
