/** Which tokens end a text. Everything that writes texts asks here, and so do the names of what it wrote. */
import type { RunIdentity } from '../evaluate/index.js';
import { readGenerationConfig, readTextDefaults, type TextDefaults } from '../models/generationConfig.js';
import type { LoadedModel } from './loadModel.js';

type WritingModel = Pick<LoadedModel, 'checkpoint' | 'tokenizer'>;

/** Those of config.json, generation_config.json and the tokenizer. Throws UserError where the second is damaged. */
export const endTokensOf = ({ checkpoint, tokenizer }: WritingModel): ReadonlySet<number> =>
  readGenerationConfig(checkpoint, tokenizer).eosTokenIds;

/** What files beside the weights decide of the texts of tasks. */
export interface TextFacts {
  /** Ascending. */
  readonly endTokens: readonly number[];
  readonly textDefaults: TextDefaults;
}

export const textFactsOf = (model: WritingModel): TextFacts => ({
  endTokens: [...endTokensOf(model)].sort((a, b) => a - b),
  textDefaults: readTextDefaults(model.checkpoint).defaults,
});

/** What journals and shards know of texts besides the model and its prompts. */
export const textsIdentity = ({ endTokens, textDefaults }: TextFacts): RunIdentity => ({
  endTokens: endTokens.join(','),
  ...(Object.keys(textDefaults).length === 0 ? {} : { textDefaults: JSON.stringify(textDefaults) }),
});
