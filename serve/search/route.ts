/** Answers of chat completions that are searched for. */
import { UserError } from '../../errors.js';
import { searchProblem } from '../../search/methods/searchProblem.js';
import type { Step } from '../../search/path.js';
import type { ProblemResult } from '../../search/result.js';
import { badRequest } from '../apiError.js';
import type { EventStream, Exchange } from '../exchange.js';
import type { ModelClient } from '../models.js';
import { SearchAnswer } from './answer.js';
import { readSearch, type SearchRequest } from './body.js';
import { ClientAsks } from './clientAsk.js';
import { pathJudgeOf, stepWriterOf } from './models.js';

type Json = Readonly<Record<string, unknown>>;

/** Of searches, so that the requests of each stay on the replica that has their pages. */
let lanes = 0;

/** Answers a body that has `search`. Rejects with ApiError. */
export async function answerSearch(client: ModelClient, given: Json, exchange: Exchange): Promise<void> {
  const request = readSearch(client, given);
  const asks = new ClientAsks(client);
  const answer = new SearchAnswer(request, exchange.id, asks.uses);
  if (!request.isStreamed) {
    const result = await search(request, asks, exchange.signal, () => undefined);
    if (result !== undefined) exchange.reply(200, answer.whole(result));
    return;
  }
  let opened: EventStream | undefined;
  // What fails before the first step is an error over HTTP.
  const open = (): EventStream => (opened ??= exchange.stream());
  try {
    let steps = 0;
    const result = await search(request, asks, exchange.signal, () => open().comment(`steps drawn: ${++steps}`));
    if (result === undefined) return;
    for (const chunk of answer.chunks(result)) open().send(JSON.stringify(chunk));
    open().end();
  } catch (error) {
    if (opened === undefined) throw error;
    opened.fail(error);
  }
}

/** Undefined where the client is gone. `onStep`: a step was drawn. */
async function search(
  { model, verifier, options, problem }: SearchRequest,
  asks: ClientAsks,
  signal: AbortSignal,
  onStep: (step: Step) => void,
): Promise<ProblemResult | undefined> {
  try {
    const writer = stepWriterOf(model, asks.ask, options);
    const judge = verifier && (await pathJudgeOf(verifier, asks.ask, options));
    const watched = {
      write: async (ask: Parameters<typeof writer.write>[0]): Promise<Step> => {
        const step = await writer.write(ask);
        onStep(step);
        return step;
      },
    };
    const result = await searchProblem(
      { id: '0', problem, lane: lanes++ },
      { writer: watched, judge, options, signal },
    );
    const [note] = result.notes;
    if (result.drawnSteps === 0 && note?.includes('context') === true)
      throw badRequest(note, 'messages', 'context_length_exceeded');
    return result;
  } catch (error) {
    if (signal.aborted) return undefined;
    throw error instanceof UserError ? badRequest(error.message, 'search') : error;
  }
}
