/** A tokenizer.json, checked before the tokenizer library sees it. */
import type { Json } from '../model/model.js';
import { z } from 'zod';
import { UserError } from '../../errors.js';
import { regexCost, regexProblem } from '../../system/boundedRegex.js';
import { isGiven, isRecord, parseJson, quote } from '../../system/json.js';
import { decodeUtf8 } from '../../system/read.js';
import { type Decoder, parseDecoders, writeDecoders } from './decoders.js';
import { type ScannedTokenizer, scanTokenizer } from './scan.js';
import {
  checkCharsmap,
  checkUnknown,
  checkVocabulary,
  type Fail,
  id,
  MAX_COMPONENTS,
  MAX_PIECE,
  modelSettings,
  type ModelSettings,
  type Pieces,
  plain,
  sharedId,
  short,
  type WholeVocabulary,
} from './vocabulary.js';

// The `post_processor` of a tokenizer.json: the tokens that it adds around every text.

const flag = z.boolean().optional();

const piece = z.union([
  z.strictObject({ SpecialToken: z.object({ id: short }) }),
  z.strictObject({ Sequence: z.object({ id: z.enum(['A', 'B']) }) }),
]);
const named = z.tuple([short, id]);
export const postProcessor = z.discriminatedUnion('type', [
  plain('ByteLevel'),
  z.object({ type: z.enum(['BertProcessing', 'RobertaProcessing']), sep: named, cls: named }),
  z.object({
    type: z.literal('TemplateProcessing'),
    single: z.array(piece).max(MAX_COMPONENTS),
    special_tokens: z.record(z.string(), z.object({ ids: z.array(id).min(1).max(MAX_COMPONENTS) })),
  }),
]);

/** Special tokens around a text, each with the ids that it stands for. */
export interface TokensAround {
  readonly before: readonly number[];
  readonly after: readonly number[];
}

/** The tokens that post-processors add before and after every text. */
export function besideOf(
  processors: readonly z.infer<typeof postProcessor>[],
  fail: (what: string) => never,
): TokensAround {
  const besides = processors.flatMap((processor): TokensAround[] => {
    switch (processor.type) {
      case 'ByteLevel':
        return []; // It changes offsets only.
      case 'BertProcessing':
      case 'RobertaProcessing':
        return [{ before: [processor.cls[1]], after: [processor.sep[1]] }];
      case 'TemplateProcessing': {
        const { single, special_tokens: special } = processor;
        const at = single.findIndex((item) => 'Sequence' in item);
        if (single.filter((item) => 'Sequence' in item).length !== 1)
          return fail('its template must contain the text exactly once');
        const idsOf = (items: typeof single): number[] =>
          items.flatMap((item) =>
            'SpecialToken' in item
              ? ((Object.hasOwn(special, item.SpecialToken.id) ? special[item.SpecialToken.id]?.ids : undefined) ??
                fail(`${quote(item.SpecialToken.id)} is not among its special_tokens`))
              : [],
          );
        return [{ before: idsOf(single.slice(0, at)), after: idsOf(single.slice(at + 1)) }];
      }
      default:
        return processor satisfies never;
    }
  });
  if (besides.length > 1) return fail('several processors add tokens');
  return besides[0] ?? { before: [], after: [] };
}

// Checks a tokenizer.json before the tokenizer library sees it, because the library ends the process on unexpected
// input. Only known components with known settings pass, every size is bounded, and the text for the library is written
// anew.

const REFETCH = 'download tokenizer.json again';
export const MAX_ADDED = 1 << 16;
/** Normalization may make a text at most this many times longer. */
const MAX_GROWTH = 64;

const regex = z.string().superRefine((pattern, context) => {
  const problem = regexProblem(pattern);
  if (problem !== undefined)
    context.addIssue({ code: 'custom', message: `the regular expression is not supported: ${problem}` });
});
const pattern = z.union([z.strictObject({ String: short }), z.strictObject({ Regex: regex })]);

const charsmap = z.string().superRefine((table, context) => {
  const { problem } = checkCharsmap(table);
  if (problem !== undefined)
    context.addIssue({ code: 'custom', message: `the table of characters is damaged: ${problem}` });
});

/** The library ends the process where it puts text behind the last character. */
const replace = z
  .object({ type: z.literal('Replace'), pattern, content: z.string().max(256) })
  .superRefine(({ pattern: from, content }, context) => {
    const cost = 'Regex' in from ? regexCost(from.Regex, 'nested') : undefined;
    if (content !== '' && cost?.problem === undefined && cost?.mayBeEmpty === true)
      context.addIssue({ code: 'custom', message: 'it would replace what may be no character at all by text' });
  });

const normalizer = z.discriminatedUnion('type', [
  plain('NFC'),
  plain('NFD'),
  plain('NFKC'),
  plain('NFKD'),
  plain('Lowercase'),
  plain('StripAccents'),
  z.object({ type: z.literal('Strip'), strip_left: z.boolean(), strip_right: z.boolean() }),
  z.object({ type: z.literal('Prepend'), prepend: short }),
  replace,
  z.object({
    type: z.literal('BertNormalizer'),
    clean_text: z.boolean(),
    handle_chinese_chars: z.boolean(),
    strip_accents: z.boolean().nullish(),
    lowercase: z.boolean(),
  }),
  z.object({ type: z.literal('Precompiled'), precompiled_charsmap: charsmap }),
]);
const behavior = z.enum(['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous']);
const preTokenizer = z.discriminatedUnion('type', [
  plain('Whitespace'),
  plain('WhitespaceSplit'),
  plain('BertPreTokenizer'),
  plain('UnicodeScripts'),
  z.object({ type: z.literal('ByteLevel'), add_prefix_space: z.boolean(), trim_offsets: flag, use_regex: flag }),
  z.object({ type: z.literal('Split'), pattern, behavior, invert: z.boolean() }),
  z.object({ type: z.literal('Digits'), individual_digits: z.boolean() }),
  z.object({ type: z.literal('Punctuation'), behavior: behavior.optional() }),
  z.object({
    type: z.literal('Metaspace'),
    replacement: z.string().refine((text) => [...text].length === 1, 'expected one character'),
    add_prefix_space: flag,
    prepend_scheme: z.enum(['always', 'never', 'first']).optional(),
    split: flag,
  }),
]);

const addedToken = z.object({
  id,
  content: z.string().min(1).max(MAX_PIECE),
  single_word: z.boolean().default(false),
  lstrip: z.boolean().default(false),
  rstrip: z.boolean().default(false),
  normalized: z.boolean().default(true),
  special: z.boolean().default(false),
});
/** A token that is searched for in texts before anything else. */
export type AddedToken = Readonly<z.infer<typeof addedToken>>;

/** Components of a list whose members may be lists: { type: "Sequence", <key>: [...] }, or nothing. */
function components(value: unknown, key: string, fail: (what: string) => never): unknown[] {
  if (!isGiven(value)) return [];
  if (!isRecord(value) || value['type'] !== 'Sequence') return [value];
  const members = value[key];
  if (!Array.isArray(members)) return fail(`a Sequence has no list of ${key}`);
  if (members.length > MAX_COMPONENTS) return fail(`a Sequence of ${members.length}; the limit is ${MAX_COMPONENTS}`);
  const all = members.flatMap((member: unknown) => components(member, key, fail));
  return all.length > MAX_COMPONENTS ? fail(`${all.length} components; the limit is ${MAX_COMPONENTS}`) : all;
}

/** How many times longer a text may become, in characters. */
function growth(component: z.infer<typeof normalizer>): number {
  switch (component.type) {
    case 'Replace': {
      const { pattern: from, content } = component;
      // A regular expression may match between any two characters.
      return 'String' in from ? Math.max(1, content.length / from.String.length) : 1 + content.length;
    }
    case 'Precompiled':
      return Math.max(1, checkCharsmap(component.precompiled_charsmap).longest ?? 1);
    case 'BertNormalizer':
      return 4 * 4; // Accents are taken apart and letters lowered; spaces are put around Chinese characters.
    case 'NFKC':
    case 'NFKD':
      return 18; // U+FDFA
    case 'NFC':
    case 'NFD':
    case 'Lowercase':
      return 4;
    default:
      return 1;
  }
}

export interface TokenizerJson {
  readonly added: readonly AddedToken[];
  /** How many at the end of `added` are of other files: the library numbers them after all others. */
  readonly later: number;
  readonly model: ModelSettings;
  readonly pieces: Pieces;
  /** The vocabulary as objects, which take ten times the memory of the file. */
  readonly vocabulary: () => WholeVocabulary;
  /** The vocabulary as members of a JSON object, for the library: UTF-8, in parts. */
  readonly written: () => readonly Uint8Array[];
  readonly normalizers: readonly z.infer<typeof normalizer>[];
  readonly preTokenizers: readonly z.infer<typeof preTokenizer>[];
  readonly beside: TokensAround;
  /** Undefined where the file's decoder is not supported: texts cannot be made of tokens. */
  readonly decoders: readonly Decoder[] | undefined;
  /** One more than the largest token id. */
  readonly vocabSize: number;
}

type JsonVocabulary = Pick<TokenizerJson, 'pieces' | 'vocabulary' | 'written'>;

/** A vocabulary that was scanned, and is as the type of the model wants it; undefined where it is not. */
function scannedVocabulary(
  { pieces, hasMerges, written }: ScannedTokenizer,
  { type }: ModelSettings,
): JsonVocabulary | undefined {
  if (type === 'Unigram' || (type === 'BPE') !== hasMerges) return undefined;
  const text = (): string => Buffer.concat(written).toString();
  return { pieces, written: () => written, vocabulary: () => JSON.parse(`{${text()}}`) as WholeVocabulary };
}

/** The ids of added tokens, by text. The library numbers those that the vocabulary lacks, whatever the file states. */
export function idsOfAdded({ pieces, added }: Pick<TokenizerJson, 'pieces' | 'added'>): ReadonlyMap<string, number> {
  const ids = new Map<string, number>();
  let next = pieces.count;
  for (const { content } of added) if (!ids.has(content)) ids.set(content, pieces.idOf(content) ?? next++);
  return ids;
}

/** Reads and checks a tokenizer.json, its bytes or its text. Throws UserError, one line. */
export function parseTokenizerJson(file: Buffer | string, where: string): TokenizerJson {
  const bytes = typeof file === 'string' ? Buffer.from(file) : file;
  const scanned = scanTokenizer(bytes);
  if (scanned !== undefined) {
    const json = checkTokenizer(parseJson(scanned.rest, where, REFETCH), where, (settings) =>
      scannedVocabulary(scanned, settings),
    );
    if (json !== undefined) return json;
  }
  const read = (settings: ModelSettings, model: Json, fail: Fail): JsonVocabulary => {
    const { pieces, ...vocabulary } = checkVocabulary(settings, model, fail);
    return {
      pieces,
      vocabulary: () => vocabulary,
      written: () => [Buffer.from(JSON.stringify(vocabulary).slice(1, -1))],
    };
  };
  return checkTokenizer(parseJson(decodeUtf8(bytes, where, REFETCH), where, REFETCH), where, read)!;
}

/** Undefined where `vocabularyOf` gives none. */
function checkTokenizer(
  json: unknown,
  where: string,
  vocabularyOf: (settings: ModelSettings, model: Json, fail: Fail) => JsonVocabulary | undefined,
): TokenizerJson | undefined {
  const stated = isRecord(json) ? json['model'] : undefined;
  if (!isRecord(json) || !isRecord(stated)) throw new UserError(`${where}: no "model": not a tokenizer.json`, REFETCH);
  if (isGiven(stated['dropout']) && stated['dropout'] !== 0) {
    throw new UserError(
      `${where}: model.dropout is ${quote(stated['dropout'])}: tokenization would be random, ` +
        'so no score could be reproduced',
      'set it to null',
    );
  }
  const fail = (place: string, what: string): never => {
    throw new UserError(`${where}: ${place}: ${what}`, 'use the tokenizer.json of the original model');
  };
  const failModel: Fail = (key, what) => fail(`model.${key}`, what);
  const check = <T>(schema: z.ZodType<T>, value: unknown, place: string): T => {
    const parsed = schema.safeParse(value);
    if (parsed.success) return parsed.data;
    const issue = parsed.error.issues[0];
    const type = isRecord(value) && issue?.path[0] === 'type' ? `${quote(value['type'])} is not supported: ` : '';
    const path = issue?.path.map(String).join('.') ?? '';
    return fail(
      `${place}${path === '' ? '' : `.${quote(path).slice(1, -1)}`}`,
      `${type}${quote(issue?.message.replace(/, received undefined$/, ', got nothing'), 200).slice(1, -1)}`,
    );
  };
  const list = <T>(schema: z.ZodType<T>, place: string, key: string): T[] =>
    components(json[place], key, (what) => fail(place, what)).map((value) => check(schema, value, place));

  const model = check(modelSettings, 'type' in stated ? stated : { type: 'BPE', ...stated }, 'model');
  const vocabulary = vocabularyOf(model, stated, failModel);
  if (vocabulary === undefined) return undefined;
  const { pieces } = vocabulary;
  checkUnknown(model, pieces, failModel);
  const added = check(z.array(addedToken).max(MAX_ADDED), json['added_tokens'] ?? [], 'added_tokens');
  const shared = sharedId(added.map((token) => [token.content, token.id]));
  if (shared !== undefined)
    fail('added_tokens', `${shared.pieces.map((each) => quote(each, 60)).join(' and ')} both have the id ${shared.id}`);
  const normalizers = list(normalizer, 'normalizer', 'normalizers');
  const longer = normalizers.reduce((product, component) => product * growth(component), 1);
  if (longer > MAX_GROWTH) fail('normalizer', `it may make a text ${longer} times longer; at most ${MAX_GROWTH}`);
  const beside = besideOf(list(postProcessor, 'post_processor', 'processors'), (what) => fail('post_processor', what));
  for (const special of [...beside.before, ...beside.after])
    if (!pieces.hasId(special) && !added.some((token) => token.id === special))
      fail('post_processor', `it adds token ${special}, which is not in the vocabulary`);
  return {
    added,
    later: 0,
    model,
    ...vocabulary,
    normalizers,
    preTokenizers: list(preTokenizer, 'pre_tokenizer', 'pretokenizers'),
    beside,
    decoders: parseDecoders(json['decoder']),
    vocabSize:
      [...idsOfAdded({ pieces, added }).values(), ...beside.before, ...beside.after].reduce(
        (largest, each) => Math.max(largest, each),
        pieces.largestId,
      ) + 1,
  };
}

/**
 * Whether it merges whole texts: nothing splits them before, so the library's cache of words would keep every text with
 * its tokens and never hit. Such a tokenizer is made without that cache, where the library allows it.
 */
export function mergesWholeTexts({ model, pieces, added, later, preTokenizers }: TokenizerJson): boolean {
  if (model.type !== 'BPE' || preTokenizers.length > 0 || !isGiven(model.unk_token) || model.ignore_merges === true)
    return false;
  const own = added.slice(0, added.length - later).map(({ content }) => content);
  return [...own, model.unk_token].every((token) => pieces.idOf(token) !== undefined);
}

/**
 * A tokenizer.json for the library, UTF-8, made only from checked values. It adds no special tokens, and lacks
 * those that are to be added later. `vocabulary`: members of the model, by default its own.
 */
export function writeTokenizerJson(json: TokenizerJson, vocabulary = json.written()): Buffer {
  const { added, later, model, normalizers, preTokenizers, decoders } = json;
  const sequence = (key: string, members: readonly unknown[]): unknown =>
    members.length === 0 ? null : { type: 'Sequence', [key]: members };
  const most = JSON.stringify({
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: added.slice(0, added.length - later),
    normalizer: sequence('normalizers', normalizers),
    pre_tokenizer: sequence('pretokenizers', preTokenizers),
    post_processor: null,
    decoder: writeDecoders(decoders),
  });
  const head = `${most.slice(0, -1)},"model":${JSON.stringify(model).slice(0, -1)},`;
  return Buffer.concat([Buffer.from(head), ...vocabulary, Buffer.from('}}')]);
}
