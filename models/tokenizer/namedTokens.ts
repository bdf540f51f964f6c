/**
 * Tokens that the files beside a vocabulary name, as transformers 5 reads them: tokenizer_config.json; and, where that
 * lists no `added_tokens_decoder`, special_tokens_map.json, which overrides it, and added_tokens.json.
 */
import { join } from 'node:path';
import { UserError } from '../../errors.js';
import { defined } from '../../system/defined.js';
import { isGiven, isRecord, parsePythonJson, quote } from '../../system/json.js';
import { decodeUtf8, fileSize, readBounded } from '../../system/read.js';
import type { ModelConfig, Json } from '../model/model.js';
import { type AddedToken, idsOfAdded, MAX_ADDED, type TokenizerJson } from './json.js';
import { MAX_ID, MAX_PIECE } from './vocabulary.js';

const MAX_BYTES = 16 << 20;

/** What a token is for. */
export const ROLES = [
  'bos_token',
  'eos_token',
  'unk_token',
  'sep_token',
  'pad_token',
  'cls_token',
  'mask_token',
] as const;
export type TokenRole = (typeof ROLES)[number];
/** The text of the token for each role; null where a file says that nobody has it. */
type Roles = Readonly<Partial<Record<TokenRole, string | null>>>;

/** How a token is searched for in texts. */
export type TokenFlags = Omit<AddedToken, 'id'>;

const PLAIN = { single_word: false, lstrip: false, rstrip: false, normalized: false } as const;
const FLAGS = ['single_word', 'lstrip', 'rstrip', 'normalized', 'special'] as const;

export interface NamedTokens {
  /** By id. Where the tokenizer has such a token, these flags count. */
  readonly listed: readonly TokenFlags[];
  /** Added where the tokenizer does not have them yet, in this order. */
  readonly others: readonly TokenFlags[];
  readonly roles: Roles;
  /** Roles of which no file says anything: the tokens of the tokenizer's class, which the vocabulary may lack. */
  readonly usual: Roles;
  readonly addBos: boolean | undefined;
  readonly addEos: boolean | undefined;
}

const same = (token: string, ...roles: readonly TokenRole[]): Roles =>
  Object.fromEntries(roles.map((role) => [role, token]));
const END = '<|endoftext|>';
const SENTENCE_PIECE = { bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>' };
const ONE_FOR_ALL = same(END, 'bos_token', 'eos_token', 'unk_token');

/** What the classes of transformers call their tokens where no file does; without `Fast` at the end. */
const USUAL: Readonly<Record<string, Roles>> = {
  LlamaTokenizer: SENTENCE_PIECE,
  CodeLlamaTokenizer: SENTENCE_PIECE,
  BloomTokenizer: { ...SENTENCE_PIECE, pad_token: '<pad>' },
  GemmaTokenizer: { bos_token: '<bos>', eos_token: '<eos>', unk_token: '<unk>', pad_token: '<pad>' },
  GPT2Tokenizer: ONE_FOR_ALL,
  GPTNeoXTokenizer: ONE_FOR_ALL,
  CodeGenTokenizer: ONE_FOR_ALL,
  Qwen2Tokenizer: same(END, 'eos_token', 'unk_token', 'pad_token'),
  CohereTokenizer: {
    bos_token: '<BOS_TOKEN>',
    eos_token: '<|END_OF_TURN_TOKEN|>',
    unk_token: '<UNK>',
    pad_token: '<PAD>',
  },
};

/** Half of a character, which no UTF-8 has. */
const LONE_HALF = /\p{Surrogate}/u;

/** A JSON file of a checkpoint with what to say of it. */
class Beside {
  readonly path: string;
  readonly value: Json;
  private readonly hint: string;

  constructor(dir: string, name: string) {
    this.path = join(dir, name);
    this.hint = `download ${name} again`;
    const value =
      fileSize(this.path) === undefined
        ? {}
        : parsePythonJson(
            decodeUtf8(readBounded(this.path, MAX_BYTES, this.hint), this.path, this.hint),
            this.path,
            this.hint,
          );
    if (!isRecord(value)) throw new UserError(`${this.path}: expected a JSON object, got ${quote(value)}`, this.hint);
    this.value = value;
  }

  fail(key: string, expected: string, value: unknown): never {
    throw new UserError(`${this.path}: ${key}: expected ${expected}, got ${quote(value)}`, this.hint);
  }

  flag(key: string): boolean | undefined {
    const value = this.value[key];
    if (!isGiven(value)) return undefined;
    return typeof value === 'boolean' ? value : this.fail(key, 'true or false', value);
  }

  /** A token as text or as an object; undefined where it is empty. `isSpecial`: whatever the object says. */
  token(value: unknown, key: string, isSpecial: boolean): TokenFlags | undefined {
    const object: Json | undefined =
      typeof value === 'string' ? { content: value } : isRecord(value) ? value : undefined;
    const content = object?.['content'];
    if (object === undefined || typeof content !== 'string' || content.length > MAX_PIECE || LONE_HALF.test(content))
      return this.fail(key, `the text of a token, of at most ${MAX_PIECE} characters, or an object with it`, value);
    if (content === '') return undefined;
    const flag = (name: string, other: boolean): boolean => {
      const stated = object[name];
      if (!isGiven(stated)) return other;
      return typeof stated === 'boolean' ? stated : this.fail(`${key}.${name}`, 'true or false', stated);
    };
    const special = isSpecial || flag('special', false);
    return {
      content,
      single_word: flag('single_word', false),
      lstrip: flag('lstrip', false),
      rstrip: flag('rstrip', false),
      normalized: flag('normalized', !special),
      special,
    };
  }

  tokens(values: unknown, key: string): TokenFlags[] {
    if (!isGiven(values)) return [];
    const list = Array.isArray(values) ? values : isRecord(values) ? Object.values(values) : undefined;
    if (list === undefined) return this.fail(key, 'a list of tokens', values);
    if (list.length > MAX_ADDED) return this.fail(key, `at most ${MAX_ADDED} tokens`, `${list.length} tokens`);
    return list.flatMap((value: unknown) => this.token(value, key, true) ?? []);
  }
}

/** Tokens in the order of their ids. */
function inOrder(
  file: Beside,
  key: string,
  entries: readonly (readonly [id: unknown, token: TokenFlags | undefined])[],
): TokenFlags[] {
  if (entries.length > MAX_ADDED) return file.fail(key, `at most ${MAX_ADDED} tokens`, `${entries.length} tokens`);
  const ordered = entries.map(([id, token]) => {
    const number = typeof id === 'string' && /^\d{1,7}$/.test(id) ? Number(id) : id;
    if (typeof number !== 'number' || !Number.isInteger(number) || number < 0 || number >= MAX_ID)
      return file.fail(key, `token ids below ${MAX_ID}`, id);
    return { id: number, token };
  });
  return ordered.sort((a, b) => a.id - b.id).flatMap(({ token }) => token ?? []);
}

/**
 * What the files in `dir` name beside the vocabulary. `usualClass`: the class of tokenizers where no file states one.
 * Throws UserError for one that is damaged.
 */
export function readNamedTokens(dir: string, usualClass = ''): NamedTokens {
  const config = new Beside(dir, 'tokenizer_config.json');
  const decoder = config.value['added_tokens_decoder'];
  // Older files, which transformers reads where the newer one does not list the tokens.
  const map = isGiven(decoder) ? undefined : new Beside(dir, 'special_tokens_map.json');
  const stated = (key: string): { readonly file: Beside; readonly value: unknown } | undefined => {
    const file = [map, config].find((each) => each !== undefined && Object.hasOwn(each.value, key));
    return file && { file, value: file.value[key] };
  };
  const roles: { -readonly [role in TokenRole]?: string | null } = {};
  const usual: { -readonly [role in TokenRole]?: string | null } = {};
  const special: TokenFlags[] = [];
  const className = [config.value, new Beside(dir, 'config.json').value]
    .map((each) => each['tokenizer_class'])
    .find((each) => typeof each === 'string');
  const ofClass = className?.replace(/Fast$/, '') ?? usualClass;
  const defaults = (Object.hasOwn(USUAL, ofClass) ? USUAL[ofClass] : undefined) ?? {};
  for (const role of ROLES) {
    const found = stated(role);
    if (found === undefined) {
      if (defaults[role] !== undefined) usual[role] = defaults[role];
      continue;
    }
    const token = isGiven(found.value) ? found.file.token(found.value, role, true) : undefined;
    roles[role] = token?.content ?? null;
    if (token !== undefined) special.push(token);
  }
  // Keys of a model's own, such as image_token.
  const own = Object.entries(config.value).filter(
    ([key, value]) => key.endsWith('_token') && !ROLES.some((role) => role === key) && typeof value === 'string',
  );
  for (const [key, value] of own) special.push(...config.tokens([value], key));
  for (const file of [config, map]) {
    if (file === undefined) continue;
    const { additional_special_tokens: older, extra_special_tokens: newer = older } = file.value;
    special.push(...file.tokens(newer, newer === older ? 'additional_special_tokens' : 'extra_special_tokens'));
  }
  return {
    listed: isGiven(decoder) ? ofDecoder(config, decoder, roles) : [],
    others: isGiven(decoder) ? special : [...ofEncoder(dir, special), ...special],
    roles,
    usual,
    addBos: config.flag('add_bos_token'),
    addEos: config.flag('add_eos_token'),
  };
}

/** `added_tokens_decoder`: objects by id. What has a role is special, whatever its object says. */
function ofDecoder(config: Beside, decoder: unknown, roles: Roles): readonly TokenFlags[] {
  const key = 'added_tokens_decoder';
  if (!isRecord(decoder)) return config.fail(key, 'an object of tokens by id', decoder);
  const named = new Set<unknown>(Object.values(roles));
  const entries = Object.entries(decoder).map(([id, value]) => {
    if (!isRecord(value)) return config.fail(`${key}.${quote(id, 12).slice(1, -1)}`, 'an object', value);
    const isNamed = named.has(value['content']);
    return [id, config.token(value, `${key}.${quote(id, 12).slice(1, -1)}`, isNamed)] as const;
  });
  return inOrder(config, key, entries);
}

/** added_tokens.json: ids by text. */
function ofEncoder(dir: string, special: readonly TokenFlags[]): readonly TokenFlags[] {
  const file = new Beside(dir, 'added_tokens.json');
  const named = new Set(special.map(({ content }) => content));
  const entries = Object.entries(file.value).map(
    ([content, id]) => [id, file.token(content, 'a token', named.has(content))] as const,
  );
  return inOrder(file, 'ids', entries);
}

/** What is known of a tokenizer's tokens before other files name some. */
export interface Vocabulary {
  /** What is searched for in texts before anything else. */
  readonly added: readonly AddedToken[];
  /** The id of a piece or an added token, as the library numbers them. */
  readonly idOf: (text: string) => number | undefined;
  /** The first id behind all of them. */
  readonly next: number;
}

/** The vocabulary of a tokenizer.json, with the ids that the library gives. */
export function vocabularyOf({ pieces, added }: TokenizerJson): Vocabulary {
  const ids = idsOfAdded({ pieces, added });
  const next = [...ids.values()].reduce((most, id) => Math.max(most, id + 1), pieces.count);
  return { added, idOf: (text) => ids.get(text) ?? pieces.idOf(text), next };
}

/** The tokens of `named` that a vocabulary lacks or has with other flags, in the order in which they are added. */
export function missingTokens(
  { added, idOf }: Vocabulary,
  { listed, others, usual }: NamedTokens,
): readonly TokenFlags[] {
  const own = new Map<string, TokenFlags>(added.map((token) => [token.content, token]));
  const missing = new Map<string, TokenFlags>();
  for (const token of listed) {
    const known = own.get(token.content);
    if (known === undefined || FLAGS.some((flag) => known[flag] !== token[flag])) missing.set(token.content, token);
    else missing.delete(token.content);
  }
  const ofClass = Object.values(usual).flatMap((content) =>
    content === null || idOf(content) === undefined ? [] : [{ ...PLAIN, content, special: true }],
  );
  for (const token of [...others, ...ofClass])
    if (!own.has(token.content) && !missing.has(token.content)) missing.set(token.content, token);
  return [...missing.values()];
}

/**
 * Those of `tokens` that are no added tokens yet, with the id that the library gives them: the next where the
 * vocabulary lacks them.
 */
export function newTokens({ added, idOf, next }: Vocabulary, tokens: readonly TokenFlags[]): readonly AddedToken[] {
  const own = new Set(added.map(({ content }) => content));
  let free = next;
  return tokens
    .filter(({ content }) => !own.has(content))
    .map((token) => ({ ...token, id: idOf(token.content) ?? free++ }));
}

/** The tokenizer with these tokens, which are new or have other flags; what is special stays so, as in the library. */
export function withTokens(json: TokenizerJson, tokens: readonly TokenFlags[]): TokenizerJson {
  if (tokens.length === 0) return json;
  const changed = new Map(tokens.map((token) => [token.content, token]));
  const later = newTokens(vocabularyOf(json), tokens);
  return {
    ...json,
    added: [
      ...json.added.map(({ id, ...token }) => {
        const { special, ...other } = changed.get(token.content) ?? token;
        return { ...other, special: special || token.special, id };
      }),
      ...later,
    ],
    later: later.length,
    vocabSize: later.reduce((most, { id }) => Math.max(most, id + 1), json.vocabSize),
  };
}

/** A token with its id. */
export interface TokenOf {
  readonly id: number;
  readonly text: string;
}

/** The tokens that begin and end texts, by the tokenizer's files; absent where they name none. */
export interface TextBounds {
  readonly bos?: TokenOf;
  readonly eos?: TokenOf;
}

/** `own`: what the vocabulary itself says, where no other file does. */
export function textBounds(
  vocabulary: Vocabulary,
  named: NamedTokens,
  tokens: readonly TokenFlags[],
  own: TextBounds = {},
): TextBounds {
  const ids = new Map(newTokens(vocabulary, tokens).map(({ content, id }) => [content, id]));
  const find = (role: TokenRole, ofOwn: TokenOf | undefined): TokenOf | undefined => {
    const stated = named.roles[role];
    if (stated === null) return undefined;
    const text = stated ?? (ofOwn === undefined ? named.usual[role] : undefined);
    if (typeof text !== 'string') return ofOwn;
    const id = ids.get(text) ?? vocabulary.idOf(text);
    return id === undefined ? undefined : { id, text };
  };
  const [bos, eos] = [find('bos_token', own.bos), find('eos_token', own.eos)];
  return { ...defined({ bos, eos }) };
}

/**
 * The token before a text without a context, as in the public harness: the tokenizer's BOS, else its EOS. Where its
 * files name neither, those of config.json. One without an embedding is none.
 */
export function prefixToken(
  { bos, eos }: TextBounds,
  { bosTokenId, eosTokenIds, vocabSize }: Pick<ModelConfig, 'bosTokenId' | 'eosTokenIds' | 'vocabSize'>,
): number | undefined {
  const token = bos?.id ?? eos?.id ?? bosTokenId ?? eosTokenIds[0];
  return token !== undefined && token < vocabSize ? token : undefined;
}
