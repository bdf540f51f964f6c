/** Mistral's tekken.json: tokens in base64 by rank, the expression that cuts texts, and special tokens before them. */
import { z } from 'zod';
import { UserError } from '../../errors.js';
import { isGiven, isRecord, parseJson, quote } from '../../system/json.js';
import { writeByteLevel } from './byteLevel.js';
import { MAX_RANKS, Ranks } from './ranks.js';
import { ruleOfPattern } from './rules.js';

const HINT = 'download tekken.json again, or put the tokenizer.json of the model beside it';
const MAX_SPECIAL = 1 << 16;
const BOS = '<s>';

const tekken = z.object({
  config: z.object({
    pattern: z.string().max(4096),
    default_vocab_size: z.int().min(1).max(MAX_RANKS),
    default_num_special_tokens: z.int().min(0).max(MAX_SPECIAL),
    version: z.string().max(64).nullish(),
  }),
  special_tokens: z
    .array(z.object({ rank: z.int().min(0), token_str: z.string().min(1).max(256) }))
    .max(MAX_SPECIAL)
    .nullish(),
  /** Checked one by one: a schema for each would take seconds. */
  vocab: z.array(z.unknown()).max(2 * MAX_RANKS),
});

const LAST_UNLISTED = 7;
/** The special tokens of files that do not list them: those of version 7 and before. */
const UNLISTED = [
  '<unk>',
  BOS,
  '</s>',
  '[INST]',
  '[/INST]',
  '[AVAILABLE_TOOLS]',
  '[/AVAILABLE_TOOLS]',
  '[TOOL_RESULTS]',
  '[/TOOL_RESULTS]',
  '[TOOL_CALLS]',
  '[IMG]',
  '<pad>',
  '[IMG_BREAK]',
  '[IMG_END]',
  '[PREFIX]',
  '[MIDDLE]',
  '[SUFFIX]',
  '[SYSTEM_PROMPT]',
  '[/SYSTEM_PROMPT]',
  '[TOOL_CONTENT]',
].map((content, rank) => ({ rank, token_str: content }));

/** The tokenizer.json (its text) that gives the tokens of a tekken.json, BOS first. Throws UserError. */
export function convertTekken(text: string, where: string): string {
  const fail = (what: string): never => {
    throw new UserError(`${where}: ${what}`, HINT);
  };
  const parsed = tekken.safeParse(parseJson(text, where, HINT));
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const path = issue?.path.map(String).join('.') ?? '';
    return fail(`${path === '' ? '' : `${quote(path).slice(1, -1)}: `}${quote(issue?.message, 200).slice(1, -1)}`);
  }
  const { config, vocab, special_tokens: listed } = parsed.data;
  const rule =
    ruleOfPattern(config.pattern) ??
    fail(`config.pattern: ${quote(config.pattern, 200)} is not the expression of published tekken files`);
  const { default_num_special_tokens: specials, default_vocab_size: size } = config;
  const count = size - specials;
  if (count < 0 || vocab.length < count)
    fail(`config.default_vocab_size is ${size}, with ${specials} special tokens, and vocab has ${vocab.length} tokens`);
  const version = /^v(\d{1,4})$/.exec(config.version ?? '')?.[1];
  if (!isGiven(listed) && Number(version ?? 0) > LAST_UNLISTED)
    fail(`special_tokens is missing, which files of version ${config.version} have`);
  const names = specialNames(listed ?? UNLISTED, specials, fail);
  const ranks = new Ranks(where, HINT);
  for (let i = 0; i < count; i++) {
    const token = vocab[i];
    const bytes = isRecord(token) && token['rank'] === i ? token['token_bytes'] : undefined;
    if (typeof bytes !== 'string') return fail(`vocab.${i}: expected rank ${i} and token_bytes in base64`);
    ranks.add(bytes, i, `vocab.${i}`);
  }
  const added = names.map((content, id) => ({ id, content, special: true }));
  return writeByteLevel({
    ...ranks.finish(names, specials),
    added,
    rule,
    before: added.filter(({ content }) => content === BOS),
  });
}

/** The names of all special tokens, by id. What is not listed is a filler. */
function specialNames(
  listed: readonly { readonly rank: number; readonly token_str: string }[],
  count: number,
  fail: (what: string) => never,
): readonly string[] {
  const names = Array.from({ length: count }, (_, id) => `<SPECIAL_${id}>`);
  const seen = new Set<number>();
  for (const { rank, token_str: name } of listed) {
    if (rank >= count) fail(`special_tokens: ${quote(name)} has rank ${rank}, and there are ${count} special tokens`);
    if (seen.has(rank)) fail(`special_tokens: rank ${rank} is there twice`);
    seen.add(rank);
    names[rank] = name;
  }
  const found = new Set<string>();
  for (const name of names) {
    if (found.has(name)) fail(`special_tokens: ${quote(name)} is there twice`);
    found.add(name);
  }
  return names;
}
