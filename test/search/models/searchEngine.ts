/** Real models for tests of search/models: checkpoints compiled for this machine, opened in an engine. */
import { vi } from 'vitest';
import { engineModelOf } from '../../../commands/engineModel.js';
import { beginLoading, type LoadedModel } from '../../../commands/loadModel.js';
import { solutionWriter } from '../../../commands/reward.js';
import { textWriter } from '../../../commands/rewardTexts.js';
import { openTemplate } from '../../../commands/templates.js';
import { chooseVerifier, openVerifier } from '../../../commands/verifier.js';
import { Phases } from '../../../driver/phases.js';
import { Engine } from '../../../engine/engine.js';
import { readGenerationConfig } from '../../../models/generationConfig.js';
import { createTokenizer } from '../../../models/tokenizer/tokenizer.js';
import { askOf } from '../../../search/asking.js';
import type { JudgeModel } from '../../../search/models/judge.js';
import { searchTexts } from '../../../search/models/texts.js';
import type { WriterModel } from '../../../search/models/writer.js';
import { SILENT } from '../../support/silent.js';
import { environment } from '../../e2e/support.js';

const REQUEST = {
  init: { kind: 'checkpoint' as const },
  precision: 'f32' as const,
  threads: 2,
  feeds: true,
  batchTokens: 128,
};
const CACHE_TOKENS = 8192;

export function stubEnvironment(): void {
  for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
}

export class SearchEngine {
  readonly engine = new Engine();
  private readonly loaded: LoadedModel[] = [];

  async writer(model: string): Promise<WriterModel> {
    const loaded = await this.load('generator', model);
    const { checkpoint, tokenizer: description } = loaded;
    const tokenizer = createTokenizer(description.spec);
    const { maxLength, room } = this.engine.limitsOf('generator');
    return {
      ask: askOf(this.engine),
      model: 'generator',
      texts: searchTexts(tokenizer, openTemplate(checkpoint.path)),
      detokenizer: tokenizer.detokenizer(),
      vocabSize: checkpoint.config.vocabSize,
      maxLength: Math.min(maxLength, room),
      bos: description.bos?.id,
      eosTokens: readGenerationConfig(checkpoint, description).eosTokenIds,
      ownEos: description.eos?.id,
    };
  }

  async judge(model: string): Promise<JudgeModel> {
    const loaded = await this.load('verifier', model);
    const { checkpoint, tokenizer: description } = loaded;
    const tokenizer = createTokenizer(description.spec);
    const verifier = await openVerifier(checkpoint, chooseVerifier(checkpoint).language, tokenizer);
    const { maxLength, room } = this.engine.limitsOf('verifier');
    const prompts = { tokenizer, template: openTemplate(checkpoint.path) };
    return {
      ask: askOf(this.engine),
      model: 'verifier',
      scoring: verifier.scoring,
      writer: textWriter(solutionWriter(loaded, verifier, prompts)),
      maxLength: Math.min(maxLength, room),
    };
  }

  async close(): Promise<void> {
    await this.engine.close();
    for (const each of this.loaded) await each.close();
  }

  private async load(name: string, model: string): Promise<LoadedModel> {
    const loaded = await beginLoading({ ...REQUEST, model, cacheTokens: CACHE_TOKENS }, SILENT, new Phases()).finish();
    this.loaded.push(loaded);
    this.engine.load(name, engineModelOf(loaded));
    return loaded;
  }
}
