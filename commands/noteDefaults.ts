/** Says what a model's own files ask of the texts of tasks: what counts, and what there is nothing for. */
import type { Ui } from '../driver/requests.js';
import type { Leaf } from '../evaluate/windows.js';
import type { FoundDefaults } from '../models/generationConfig.js';
import { type Generation, type ModelDefaults, withDefaults } from '../tasks/requests/generation.js';

/** Names in the file. */
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
