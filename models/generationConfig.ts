/**
 * generation_config.json of a checkpoint folder: more tokens that end a text, which count, and the sampling that its
 * makers suggest, which is shown and never applied unasked.
 */
import { join } from 'node:path';
import { z } from 'zod';
import { UserError } from '../errors.js';
import { quote } from '../system/json.js';
import { fileSize, readJsonObject } from '../system/read.js';
import type { Checkpoint } from './checkpoint.js';
import type { TextBounds } from './tokenizer/namedTokens.js';
import { findGgufModel } from './weights/weightFiles.js';

const FILE = 'generation_config.json';
const MAX_BYTES = 1 << 20;
const MAX_IDS = 64;

const tokenId = z.number().int();
const number = z.number().nullish().catch(undefined);
const schema = z.looseObject({
  eos_token_id: z
    .union([tokenId, z.array(tokenId).max(MAX_IDS)], {
      error: `expected a token id or a list of at most ${MAX_IDS}`,
    })
    .nullish(),
  do_sample: z.boolean().nullish().catch(undefined),
  temperature: number,
  top_k: number,
  top_p: number,
  min_p: number,
  repetition_penalty: number,
});

/** The suggestions as flags, and the values at which they do nothing. */
const FLAGS = [
  ['temperature', '--temperature', undefined],
  ['top_k', '--top-k', 0],
  ['top_p', '--top-p', 1],
  ['min_p', '--min-p', 0],
  ['repetition_penalty', '--repetition-penalty', 1],
] as const;

export interface GenerationConfig {
  /** All tokens that end a text: by config.json, by generation_config.json, and the tokenizer's EOS. */
  readonly eosTokenIds: ReadonlySet<number>;
  /** `--temperature 0.6 --top-p 0.9`; undefined where nothing is suggested. */
  readonly suggested: string | undefined;
}

/** Throws UserError where the file is damaged. */
export function readGenerationConfig(
  { path: from, config }: Pick<Checkpoint, 'path' | 'config'>,
  { eos }: TextBounds,
): GenerationConfig {
  const path = join(from, FILE);
  // A model never generates a token that it has no embedding for.
  const ends = [...config.eosTokenIds, ...(eos === undefined || eos.id >= config.vocabSize ? [] : [eos.id])];
  // What a GGUF file says of itself is all that counts.
  if (findGgufModel(from) !== undefined || fileSize(path) === undefined)
    return { eosTokenIds: new Set(ends), suggested: undefined };
  const checked = schema.safeParse(readJsonObject(path, MAX_BYTES).value);
  if (!checked.success) {
    const [issue] = checked.error.issues;
    throw new UserError(
      `${path}: ${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'not understood'}`,
      'download the file again, or remove it',
    );
  }
  const { data } = checked;
  const own = [data.eos_token_id ?? []].flat().filter((id) => id >= 0 && id < config.vocabSize);
  const flags = FLAGS.flatMap(([field, flag, none]) => {
    const value = data[field];
    return typeof value === 'number' && value !== none ? [`${flag} ${value}`] : [];
  });
  return {
    eosTokenIds: new Set([...ends, ...own]),
    suggested: data.do_sample === true && flags.length > 0 ? flags.join(' ') : undefined,
  };
}

// What transformers' `generate` takes from a checkpoint without being asked, which is what the public harness' hf model
// goes by: generation_config.json, or config.json where there is none. Its source: generation/utils.py and
// configuration_utils.py. Whether tokens are drawn and at which temperature is not among it: the harness always says.

const MAX_TOKENS = 2 ** 31 - 1;
const MAX_LETTERS = 40;

/** Absent: the file says nothing of it, or what does nothing. */
export interface TextDefaults {
  readonly repetitionPenalty?: number;
  /** No token that ends a text comes before it has so many new tokens. */
  readonly minNewTokens?: number;
  /** The same with those of the prompt; `minNewTokens` comes before it. */
  readonly minLength?: number;
  /** Of drawn texts. */
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
}

export interface FoundDefaults {
  readonly defaults: TextDefaults;
  /** The name of the file. */
  readonly file: string;
  /** Settings that would change a text and that there is nothing for, as `no_repeat_ngram_size 3`. */
  readonly leftOut: readonly string[];
  /** Those that would change drawn texts only. */
  readonly leftOutOfDrawn: readonly string[];
}

/** A number by its name in the file, with its range, and the value at which it does nothing. */
const NUMBERS = [
  { key: 'repetition_penalty', name: 'repetitionPenalty', least: Number.MIN_VALUE, most: 100, none: 1 },
  { key: 'min_new_tokens', name: 'minNewTokens', least: 0, most: MAX_TOKENS, none: 0, isWhole: true },
  { key: 'min_length', name: 'minLength', least: 0, most: MAX_TOKENS, none: 0, isWhole: true },
  { key: 'top_k', name: 'topK', least: 0, most: MAX_TOKENS, none: 0, isWhole: true },
  { key: 'top_p', name: 'topP', least: 0, most: 1, none: 1 },
  { key: 'min_p', name: 'minP', least: 0, most: 1, none: 0 },
] as const;

/** Settings that nothing here does, and the values at which they do nothing, besides null and an empty list. */
const OTHERS: readonly (readonly [key: string, ...none: readonly unknown[]])[] = [
  ['no_repeat_ngram_size', 0],
  ['encoder_no_repeat_ngram_size', 0],
  ['encoder_repetition_penalty', 1],
  ['bad_words_ids'],
  ['suppress_tokens'],
  ['begin_suppress_tokens'],
  ['sequence_bias'],
  ['forced_bos_token_id'],
  ['forced_eos_token_id'],
  ['forced_decoder_ids'],
  ['force_words_ids'],
  ['constraints'],
  ['exponential_decay_length_penalty'],
  ['guidance_scale', 1],
  ['num_beams', 1],
  ['num_beam_groups', 1],
  ['penalty_alpha', 0],
  ['dola_layers'],
  ['token_healing', false],
  ['watermarking_config'],
  ['stop_strings'],
  ['max_time'],
  ['max_new_tokens'],
];
const OTHERS_OF_DRAWN: typeof OTHERS = [
  ['typical_p', 1],
  ['epsilon_cutoff', 0],
  ['eta_cutoff', 0],
  ['top_h', 1],
];

const numberSchema = z.number().nullish();

/** The file that counts; undefined for a GGUF file, and for a folder with neither. */
function fileOf(folder: string): string | undefined {
  if (findGgufModel(folder) !== undefined) return undefined;
  return ['generation_config.json', 'config.json'].find((file) => fileSize(join(folder, file)) !== undefined);
}

function left(values: Readonly<Record<string, unknown>>, settings: typeof OTHERS): string[] {
  return settings.flatMap(([key, ...none]) => {
    const value = Object.hasOwn(values, key) ? values[key] : undefined;
    if (value === undefined || value === null || none.includes(value)) return [];
    if (typeof value === 'object' && Object.keys(value).length === 0) return [];
    const shown = typeof value === 'object' ? '' : ` ${typeof value === 'string' ? quote(value) : String(value)}`;
    return [`${key}${shown.length > MAX_LETTERS ? '' : shown}`];
  });
}

/** Throws UserError for a number out of its range. */
export function readTextDefaults({ path: from }: Pick<Checkpoint, 'path'>): FoundDefaults {
  const file = fileOf(from);
  if (file === undefined) return { defaults: {}, file: '', leftOut: [], leftOutOfDrawn: [] };
  const path = join(from, file);
  const { value: values } = readJsonObject(path, MAX_BYTES);
  const found = NUMBERS.flatMap((each): readonly (readonly [string, number])[] => {
    const { data: value, success } = numberSchema.safeParse(Object.hasOwn(values, each.key) ? values[each.key] : null);
    // vLLM writes -1 for "all tokens".
    const isOff = value === each.none || (each.key === 'top_k' && value === -1);
    if (success && (value === null || value === undefined || isOff)) return [];
    const isWhole = 'isWhole' in each;
    if (!success || value! < each.least || value! > each.most || (isWhole && !Number.isInteger(value)))
      throw new UserError(
        `${path}: ${each.key}: expected a ${isWhole ? 'whole number' : 'number'} ` +
          `${each.least === Number.MIN_VALUE ? 'above 0' : 'from 0'} to ${each.most}`,
        'correct the file, or leave the setting out of it',
      );
    return [[each.name, value!]];
  });
  return {
    defaults: Object.fromEntries(found),
    file,
    leftOut: left(values, OTHERS),
    leftOutOfDrawn: left(values, OTHERS_OF_DRAWN),
  };
}
