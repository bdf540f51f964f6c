/** A loaded model that is spoken to: each turn continues the whole conversation, whose beginning is in pages. */
import { settleTarget } from '../driver/devices/chooseTarget.js';
import { Phases } from '../driver/phases.js';
import type { WithTargetChoice } from '../driver/precision.js';
import type { LoadRequest, Ui } from '../driver/requests.js';
import { mayFeed } from '../driver/targets/index.js';
import { type GenerateOptions, wantsLogits } from '../generate/options.js';
import type { Message } from '../generate/prompts.js';
import { readGenerationConfig } from '../models/generationConfig.js';
import { requireModelAt } from '../models/model/refusals.js';
import { createTokenizer, type Tokenizer } from '../models/tokenizer/tokenizer.js';
import type { Dict } from '../python/value.js';
import { compileWithCache } from './cacheSize.js';
import { type Continuation, TextGenerator, type TextPiece } from './continuation.js';
import { EarlyModel } from './earlyModel.js';
import { noteSuggestion } from './generate.js';
import { beginLoading } from './loadModel.js';
import { checkBiases, tokenizePrompts } from './promptTokens.js';
import { openTemplate } from './templates.js';

export interface ConverseRequest extends LoadRequest, GenerateOptions {
  /** Variables of the chat template. */
  readonly templateVariables?: Dict;
}

export interface Turn {
  readonly onPiece: (piece: TextPiece) => void;
  /** Ends the answer; what there is of it belongs to the conversation. */
  readonly signal: AbortSignal;
}

export interface Conversation {
  /** Whether turns are written by the checkpoint's chat template; if not, each text is continued by itself. */
  readonly isChat: boolean;
  /** Rejects with UserError or GenerateError where the text cannot be taken; it is then no part of the conversation. */
  say(text: string, turn: Turn): Promise<Continuation>;
  close(): Promise<void>;
}

/** Checkpoint or artifact → a model that is spoken to. */
export async function converse(asked: WithTargetChoice<ConverseRequest>, ui: Ui): Promise<Conversation> {
  requireModelAt(asked.model);
  const settled = await settleTarget(asked, ui);
  const request = { ...settled, logits: wantsLogits(settled), feeds: mayFeed(settled) };
  const opening = beginLoading(request, ui, new Phases());
  const { config, path } = opening.checkpoint;
  checkBiases(request.logitBias, config);
  const own = readGenerationConfig(opening.checkpoint, opening.tokenizer);
  noteSuggestion(own, request, ui);
  await compileWithCache(
    opening,
    request,
    { prompt: 1, where: 'a prompt', least: 2, longest: 2, total: config.maxPositions },
    ui,
  );
  const early = await EarlyModel.begin(opening);
  let tokenizer: Tokenizer;
  try {
    // Opened while weights stream.
    tokenizer = createTokenizer(opening.tokenizer.spec);
  } catch (error) {
    await early.close();
    throw error;
  }
  const loaded = (await early.take())!;
  const template = openTemplate(path);
  const continuer = new TextGenerator(loaded, tokenizer, own.eosTokenIds);
  let messages: readonly Message[] = [];
  return {
    isChat: template !== undefined,
    async say(text, turn) {
      const said = [...messages, { role: 'user', content: text }];
      const prompt = template === undefined ? { prompt: text } : { messages: said };
      const [tokenized] = await tokenizePrompts(
        [{ where: 'this turn', prompt }],
        { tokenizer, template, variables: request.templateVariables },
        config,
      );
      const [answer] = await continuer.continue(tokenized!.tokens, { ...request, ...turn });
      if (answer === undefined || answer instanceof Error) throw answer ?? new Error('The model gave no answer.');
      messages = [...said, { role: 'assistant', content: answer.text }];
      return answer;
    },
    async close() {
      await template?.close();
      await loaded.close();
    },
  };
}
