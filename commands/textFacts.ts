/**
 * What files beside the weights say of texts: the tokens that end one, and defaults. Everything that writes texts asks
 * here, and so do the names of what it wrote.
 */
import type { Ui } from '../driver/requests.js';
import type { RunIdentity } from '../evaluate/journal.js';
import type { Leaf } from '../evaluate/windows.js';
import {
  type FoundDefaults,
  readGenerationConfig,
  readTextDefaults,
  type TextDefaults,
} from '../models/generationConfig.js';
import { type Generation, type ModelDefaults, withDefaults } from '../tasks/requests/generation.js';
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

/** Names in generation_config.json. */
const KEYS: Readonly<Record<keyof ModelDefaults, string>> = {
  repetitionPenalty: 'repetition_penalty',
  minNewTokens: 'min_new_tokens',
  minLength: 'min_length',
  topK: 'top_k',
  topP: 'top_p',
  minP: 'min_p',
};

/** The value that is in force for a text, of whatever file. */
const valueOf = (generation: Generation, name: keyof ModelDefaults): number | undefined =>
  name === 'topK' || name === 'topP' || name === 'minP' ? generation.drawing?.[name] : generation[name];

/** Says what a model's own files ask of the texts of tasks: what counts, and what there is nothing for. */
export function noteDefaults(
  leaves: readonly Pick<Leaf, 'scores'>[],
  { defaults, file, leftOut, leftOutOfDrawn }: FoundDefaults,
  ui: Pick<Ui, 'note' | 'warn'>,
): void {
  const texts = leaves.flatMap(({ scores }) => scores.generation ?? []);
  const counts = (name: keyof ModelDefaults): boolean =>
    texts.some((own) => valueOf(own, name) === undefined && valueOf(withDefaults(own, defaults), name) !== undefined);
  const counting = (Object.keys(KEYS) as (keyof ModelDefaults)[]).filter(counts);
  if (counting.length > 0)
    ui.note(
      `${file} of the model counts for texts of tasks, as for the public harness' hf model: ` +
        `${counting.map((name) => `${KEYS[name]} ${defaults[name]}`).join(', ')}; --gen_kwargs changes it`,
    );
  const isDrawn = texts.some(({ drawing }) => drawing !== undefined);
  const missing = isDrawn ? [...leftOut, ...leftOutOfDrawn] : leftOut;
  if (missing.length > 0)
    ui.warn(
      `left out of texts of tasks, though the public harness' hf model would take it from ${file} of the model: ` +
        missing.join(', '),
    );
}
