/** The two models of a search, as a server has them. */
import type { Ask, SearchTexts } from '../../search/asking.js';
import { EngineJudge } from '../../search/models/judge.js';
import { TEMPLATE_DAY } from '../../search/models/texts.js';
import { EngineWriter } from '../../search/models/writer.js';
import type { SearchOptions } from '../../search/options.js';
import type { PathJudge, StepWriter } from '../../search/ports.js';
import { askOf, type ServedModel } from '../models.js';
import { type ScoringModel, scoringOf, writerOf } from '../pooling/verifier.js';

export function stepWriterOf(model: ServedModel, ask: Ask, options: SearchOptions): StepWriter {
  const { texts, vocabSize, maxLength, bosTokenId, eosTokenIds, ownEosTokenId } = model;
  return new EngineWriter(
    {
      ...{ ask: asking(model, ask), vocabSize, maxLength, model: model.key, texts: searchTextsOf(model) },
      ...{ detokenizer: texts.detokenizer, bos: bosTokenId, eosTokens: eosTokenIds, ownEos: ownEosTokenId },
    },
    options,
  );
}

/** Rejects with ApiError 400 where the tokenizer lacks what the verifier needs. */
export async function pathJudgeOf(model: ScoringModel, ask: Ask, options: SearchOptions): Promise<PathJudge> {
  const writer = await writerOf(model);
  const scoring = scoringOf(model, writer.verdicts);
  return EngineJudge.open(
    { ask: asking(model, ask), scoring, writer, model: model.key, maxLength: model.maxLength },
    options,
  );
}

/** Every request for the model has its adapter. */
const asking = (model: ServedModel, ask: Ask): Ask =>
  model.adapter === undefined ? ask : (request) => ask({ ...request, ...askOf(model) });

const searchTextsOf = ({ texts }: ServedModel): SearchTexts => ({
  hasTemplate: texts.tokenizerInfo['chat_template'] !== undefined,
  encodeWritten: async (text) => (await texts.encode([text], false))[0] ?? [],
  writeTurns: async (turns, addGenerationPrompt) => {
    const variables = { date_string: TEMPLATE_DAY };
    const messages = turns.map(({ role, content }) => ({ role, content }));
    return (await texts.renderChat({ messages, addGenerationPrompt, continueFinalMessage: false, variables })).tokens;
  },
});
