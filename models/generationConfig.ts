/**
 * generation_config.json of a checkpoint folder: more tokens that end a text, which count, and the sampling that its
 * makers suggest, which is shown and never applied unasked.
 */
import { join } from 'node:path';
import { z } from 'zod';
import { UserError } from '../errors.js';
import { fileSize, readJsonObject } from '../system/read.js';
import type { Checkpoint } from './checkpoint.js';
import type { TextBounds } from './namedTokens.js';
import { findGgufModel } from './weightFiles.js';

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
