/** Tokenizers that merge by rank: tiktoken's files and Mistral's tekken.json. */
import { at as elementAt } from '../../system/at.js';
import { z } from 'zod';
import { UserError } from '../../errors.js';
import { isGiven, isRecord, parseJson, quote } from '../../system/json.js';
import {
  type ByteLevelRule,
  type ByteLevelTokenizer,
  LLAMA_3,
  LLAMA_4,
  pieceOf,
  QWEN,
  ruleOfPattern,
  writeByteLevel,
} from './byteLevel.js';

// Merges of a byte-pair encoding that has a rank for each piece and no list of merges.

/** Twice those of the largest published vocabularies. */
const MAX_MERGES = 1 << 20;
/** Characters that are compared to find them: 50 times those of the largest published vocabularies. */
const MAX_COMPARED = 1 << 30;

/**
 * Every way to form a piece from two others, in the order of `ranked`, best first; within a piece by left id, then
 * right id. Splits fall between UTF-16 units; no vocabulary contains half of a surrogate pair. Fails if there are too
 * many.
 *
 * To merge by this list is to merge by rank. When the pair of the best rank is merged, the leftmost of equals, a piece
 * comes to be in one way only: nothing has crossed its ends until then, so all happened that happens to its text alone.
 * Pairs of other splits never stand side by side.
 */
export function findMerges(
  ranked: Iterable<string>,
  ids: ReadonlyMap<string, number>,
  fail: (what: string) => never,
): [left: string, right: string][] {
  const merges: [string, string][] = [];
  let compared = 0;
  for (const piece of ranked) {
    if ((compared += piece.length ** 2) > MAX_COMPARED) fail('its pieces are too long to be searched for merges');
    const splits: { left: number; right: number; pair: [string, string] }[] = [];
    for (let at = 1; at < piece.length; at++) {
      const leftText = piece.slice(0, at);
      const left = ids.get(leftText);
      if (left === undefined) continue;
      const rightText = piece.slice(at);
      const right = ids.get(rightText);
      if (right !== undefined) splits.push({ left, right, pair: [leftText, rightText] });
    }
    splits.sort((a, b) => a.left - b.left || a.right - b.right);
    for (const { pair } of splits) merges.push(pair);
    if (merges.length > MAX_MERGES) fail(`more than ${MAX_MERGES} merges`);
  }
  return merges;
}

// A vocabulary of byte strings with ranks, as tiktoken has them: neighbours merge whose union has the lowest rank.

/** The longest token of published files has 256 bytes. */
const MAX_TOKEN_BYTES = 512;
/** Twice the tokens of the largest published vocabularies. */
export const MAX_RANKS = 1 << 19;

const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;
const encodedLength = (bytes: number): number => 4 * Math.ceil(bytes / 3);

/** The bytes that `text` stands for in base64, as characters U+0000 to U+00FF; or what is wrong with it. */
function decode(text: string): string | { readonly problem: string } {
  if (text.length > encodedLength(MAX_TOKEN_BYTES)) return { problem: `more than ${MAX_TOKEN_BYTES} bytes` };
  if (text.length % 4 !== 0 || !BASE64.test(text)) return { problem: 'not base64' };
  return Buffer.from(text, 'base64').toString('latin1');
}

/** Collects tokens by rank. What is wrong is said by `fail` with the place of the token. */
export class Ranks {
  readonly #byRank: (string | undefined)[] = [];
  readonly #ids = new Map<string, number>();
  readonly #where: string;
  readonly #hint: string;

  constructor(where: string, hint: string) {
    this.#where = where;
    this.#hint = hint;
  }

  get size(): number {
    return this.#byRank.length;
  }

  /** `place`: of the token, for messages. Throws UserError. */
  add(base64: string, rank: number, place: string): void {
    const fail = (what: string): never => this.#fail(`${place}: ${what}`);
    const bytes = decode(base64);
    if (typeof bytes !== 'string') return fail(bytes.problem);
    if (rank >= MAX_RANKS) return fail(`rank ${rank}; the limit is ${MAX_RANKS}`);
    if (this.#byRank[rank] !== undefined) return fail(`rank ${rank} is there twice`);
    const other = this.#ids.get(bytes);
    if (other !== undefined) return fail(`the token of rank ${rank} has rank ${other} too`);
    this.#byRank[rank] = bytes;
    this.#ids.set(bytes, rank);
  }

  /** All tokens by rank. Throws UserError if a rank or a byte is missing. */
  tokens(): readonly string[] {
    for (let rank = 0; rank < this.#byRank.length; rank++)
      if (this.#byRank[rank] === undefined)
        this.#fail(`no token has rank ${rank}, and one has ${this.#byRank.length - 1}`);
    for (let byte = 0; byte < 256; byte++)
      if (!this.#ids.has(String.fromCharCode(byte))) this.#fail(`byte ${byte} is no token: not every text has tokens`);
    return this.#byRank as readonly string[];
  }

  /**
   * The pieces, whose ids are their ranks and `shift`, and their merges. Throws UserError as tokens does, and if a name
   * in `special` is a piece.
   */
  finish(special: readonly string[], shift = 0): Pick<ByteLevelTokenizer, 'vocab' | 'merges'> {
    const tokens = this.tokens();
    // No prototype: a piece may be called __proto__.
    const vocab = Object.create(null) as Record<string, number>;
    tokens.forEach((bytes, rank) => (vocab[pieceOf(bytes)] = rank + shift));
    const taken = special.find((name) => name in vocab);
    if (taken !== undefined)
      this.#fail(`the special token ${quote(taken)} is the token of rank ${(vocab[taken] ?? shift) - shift} too`);
    const merges = findMerges(tokens, this.#ids, (what) => this.#fail(what));
    return { vocab, merges: merges.map(([left, right]) => [pieceOf(left), pieceOf(right)]) };
  }

  #fail(what: string): never {
    throw new UserError(`${this.#where}: ${what}`, this.#hint);
  }
}

// Mistral's tekken.json: tokens in base64 by rank, the expression that cuts texts, and special tokens before them.

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

// tiktoken files as Meta and Alibaba publish them: a token a line, in base64, with its rank. They hold neither the
// expression that cuts texts nor the special tokens: both are those of the model's own code, by release.

const USE_JSON = 'put the tokenizer.json of the model beside it: it is used if both exist';
const FIRST_LINE = /^[^\s]+ \d+\r?(?:\n|$)/;
/** In base64, with a rank behind it. */
const MAX_LINE = 1024;

/** Whether a file begins as tiktoken files do. A SentencePiece model begins with an end of line. */
export const isTiktoken = (bytes: Uint8Array): boolean =>
  FIRST_LINE.test(Buffer.from(bytes.subarray(0, MAX_LINE)).toString('latin1'));

/** What a checkpoint says beside such a file. */
export interface TiktokenFacts {
  /** Tokens that the model knows, special ones included. */
  readonly vocabSize?: number;
  /** Whether rotary frequencies are scaled as LLaMA 3.1 and later do it, which renamed special tokens. */
  readonly isScaled?: boolean;
}

interface Release {
  readonly name: string;
  readonly ranks: number;
  readonly rule: ByteLevelRule;
  /** In order of their ids, behind the ranks. */
  readonly special: readonly string[];
  readonly bos?: string;
}

const numbered = (name: string, from: number, count: number): string[] =>
  Array.from({ length: count }, (_, i) => `<|${name}_${from + i}|>`);
const reserved = (from: number, count: number, name = ''): string[] =>
  numbered(`${name}reserved_special_token`, from, count);

/** 256 tokens: those with names of their own, by place, and `<|reserved_special_token_N|>` between and behind them. */
function llama3Special(names: Readonly<Record<number, string>>): readonly string[] {
  let next = 0;
  return Array.from({ length: 256 }, (_, i) => {
    const name = names[i];
    return name === undefined ? `<|reserved_special_token_${next++}|>` : `<|${name}|>`;
  });
}

const LLAMA_3_0 = llama3Special({
  0: 'begin_of_text',
  1: 'end_of_text',
  6: 'start_header_id',
  7: 'end_header_id',
  9: 'eot_id',
});
const LLAMA_3_1 = llama3Special({
  0: 'begin_of_text',
  1: 'end_of_text',
  4: 'finetune_right_pad_id',
  5: 'step_id',
  6: 'start_header_id',
  7: 'end_header_id',
  8: 'eom_id',
  9: 'eot_id',
  10: 'python_tag',
  11: 'image',
});
const LLAMA_4_SPECIAL = [
  ...['begin_of_text', 'end_of_text', 'fim_prefix', 'fim_middle', 'fim_suffix'].map((name) => `<|${name}|>`),
  ...['header_start', 'header_end', 'eom', 'eot', 'step'].map((name) => `<|${name}|>`),
  ...reserved(0, 6, 'text_post_train_'),
  ...['python_start', 'python_end', 'finetune_right_pad'].map((name) => `<|${name}|>`),
  ...reserved(8, 61, 'text_post_train_'),
  ...['image_start', 'image_end'].map((name) => `<|${name}|>`),
  ...reserved(0, 2, 'vision_'),
  ...['tile_x_separator', 'tile_y_separator'].map((name) => `<|${name}|>`),
  ...reserved(2, 4, 'vision_'),
  '<|image|>',
  ...reserved(6, 1, 'vision_'),
  '<|patch|>',
  ...reserved(7, 1041, 'vision_'),
  ...reserved(0, 8, 'reasoning_'),
  ...['reasoning_thinking_start', 'reasoning_thinking_end'].map((name) => `<|${name}|>`),
];

const RELEASES: readonly Release[] = [
  { name: 'Llama 3', ranks: 128_000, rule: LLAMA_3, special: LLAMA_3_1, bos: '<|begin_of_text|>' },
  {
    name: 'Llama 4',
    ranks: 200_000,
    rule: LLAMA_4,
    special: [...LLAMA_4_SPECIAL, ...reserved(0, 2048 - LLAMA_4_SPECIAL.length)],
    bos: '<|begin_of_text|>',
  },
  {
    name: 'Qwen',
    ranks: 151_643,
    rule: { ...QWEN, ignoresMerges: true },
    special: ['<|endoftext|>', '<|im_start|>', '<|im_end|>', ...numbered('extra', 0, 205)],
  },
];

/** By its number of ranks; else by the special tokens that a model has room for behind them. */
function releaseOf(ranks: number, { vocabSize }: TiktokenFacts): Release | undefined {
  return (
    RELEASES.find((release) => release.ranks === ranks) ??
    RELEASES.find(({ special }) => vocabSize !== undefined && vocabSize - ranks === special.length)
  );
}

function readRanks(bytes: Buffer, where: string): Ranks {
  const hint = 'download the file again, or put the tokenizer.json of the model beside it';
  const ranks = new Ranks(where, hint);
  const text = bytes.toString('latin1');
  for (let at = 0, line = 1; at < text.length; line++) {
    const end = text.indexOf('\n', at);
    const next = end === -1 ? text.length : end;
    const fail = (what: string): never => {
      throw new UserError(`${where}: line ${line}: ${what}`, hint);
    };
    if (next - at > MAX_LINE) fail(`${next - at} characters; the limit is ${MAX_LINE}`);
    const content = text.slice(at, next).trimEnd();
    at = next + 1;
    if (content === '') continue;
    const parts = /^(\S+) (\d{1,9})$/.exec(content);
    if (parts === null) return fail('expected a token in base64, a space and its rank');
    if (ranks.size >= MAX_RANKS) fail(`more than ${MAX_RANKS} tokens`);
    ranks.add(elementAt(parts, 1), Number(parts[2]), `line ${line}`);
  }
  return ranks;
}

/** The tokenizer.json (its text) that gives the tokens of a tiktoken file. Throws UserError. */
export function convertTiktoken(bytes: Buffer, where: string, facts: TiktokenFacts): string {
  const ranks = readRanks(bytes, where);
  const count = ranks.tokens().length;
  const release = releaseOf(count, facts);
  if (release === undefined) {
    const known = RELEASES.map(({ name, ranks: size }) => `${name}, ${size.toLocaleString('en')}`).join('; ');
    throw new UserError(
      `${where}: a tiktoken file of ${count.toLocaleString('en')} tokens, whose expression for cutting texts and ` +
        `special tokens are not known (known: ${known})`,
      USE_JSON,
    );
  }
  const names = release.special === LLAMA_3_1 && facts.isScaled === false ? LLAMA_3_0 : release.special;
  const added = names.map((content, i) => ({ id: count + i, content, special: true }));
  return writeByteLevel({
    ...ranks.finish(names),
    added,
    rule: release.rule,
    before: added.filter(({ content }) => content === release.bos),
  });
}
