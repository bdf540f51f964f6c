/** A loaded model that is spoken to: each turn continues the whole conversation, whose beginning is in pages. */
import { Phases } from '../driver/phases.js';
import type { LoadRequest, Ui } from '../driver/requests.js';
import { mayFeed } from '../driver/targets/index.js';
import { type GenerateOptions, wantsLogits } from '../generate/options.js';
import type { Message } from '../generate/prompts.js';
import { readGenerationConfig } from '../models/generationConfig.js';
import { createTokenizer, type Tokenizer } from '../models/tokenizer/tokenizer.js';
import type { Dict } from '../python/value.js';
import { compileWithCache } from './cacheSize.js';
import { type Continuation, Continuer, type Piece } from './continuation.js';
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
  readonly onPiece: (piece: Piece) => void;
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

export async function converse(request: ConverseRequest, ui: Ui): Promise<Conversation> {
  const asked = { ...request, logits: wantsLogits(request), feeds: mayFeed(request) };
  const opening = beginLoading(asked, ui, new Phases());
  const { config, path } = opening.checkpoint;
  checkBiases(request.logitBias, config);
  const own = readGenerationConfig(opening.checkpoint, opening.tokenizer);
  noteSuggestion(own, request, ui);
  await compileWithCache(
    opening,
    asked,
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
  const continuer = new Continuer(loaded, tokenizer, own.eosTokenIds);
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
