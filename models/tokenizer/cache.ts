/**
 * What is known of large tokenizers whose files were checked before, by the hashes of their bytes, in the user's cache:
 * facts, and the text that was checked and written for the tokenizer library. Entries are as trustworthy as the kernels
 * beside them: only this user and root can write there, and an entry that is damaged is none.
 */
import { createHash } from 'node:crypto';
import { lstatSync, statSync, utimesSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { UserError } from '../../errors.js';
import { readSettings } from '../../settings.js';
import { defined } from '../../system/defined.js';
import { decodeUtf8, intruder, readBounded } from '../../system/read.js';
import { makeFolder, writeAtomically } from '../../system/write.js';
import { type Decoder, decoderList } from './decoders.js';
import { type TokensAround, MAX_ADDED, type TokenizerJson, writeTokenizerJson } from './json.js';
import type { TextBounds, TokenFlags } from './namedTokens.js';
import type { SpecialTokens } from './sentencepiece.js';
import { mayCutLines } from './shared.js';
import { MAX_ID, MAX_PIECE } from './vocabulary.js';

/** To be raised whenever another check is made, or something else is found. */
const VERSION = 3;
/** A smaller file is read and checked in less time than an entry. */
const WORTH_BYTES = 1 << 20;
const MAX_BYTES = 64 << 20;
/** In place of what lies beside a file. */
const TEXT = 'text';

export interface TokenizerFacts {
  readonly bounds: TextBounds;
  /** What other files change of the tokenizer. */
  readonly changes: {
    readonly beside?: Partial<TokensAround>;
    readonly tokens?: readonly TokenFlags[];
    readonly spaceUnless?: readonly string[];
  };
  /** Of a tokenizer.model: whether its own tokens go around a text. */
  readonly special?: SpecialTokens;
  readonly vocabSize: number;
}

const id = z
  .int()
  .min(0)
  .max(2 * MAX_ID);
const text = z.string().min(1).max(MAX_PIECE);
const token = z.strictObject({ id, text });
const ids = z.array(id).max(16);
const flags = z.strictObject({
  content: text,
  single_word: z.boolean(),
  lstrip: z.boolean(),
  rstrip: z.boolean(),
  normalized: z.boolean(),
  special: z.boolean(),
});
const facts: z.ZodType<TokenizerFacts> = z.strictObject({
  bounds: z.strictObject({ bos: token.exactOptional(), eos: token.exactOptional() }),
  changes: z.strictObject({
    beside: z.strictObject({ before: ids.exactOptional(), after: ids.exactOptional() }).exactOptional(),
    tokens: z
      .array(flags)
      .max(2 * MAX_ADDED)
      .exactOptional(),
    spaceUnless: z
      .array(text)
      .max(2 * MAX_ADDED)
      .exactOptional(),
  }),
  special: z.strictObject({ addBos: z.boolean(), addEos: z.boolean() }).exactOptional(),
  vocabSize: id,
});
/** Where entries for a file are. */
export interface FileCache {
  readonly folder: string;
  /** SHA-256 of the file, hexadecimal. */
  readonly digest: string;
}

export const digestOf = (content: string | Uint8Array): string => createHash('sha256').update(content).digest('hex');

/** `file`, whose digest may be known. Throws UserError where it is not what was described. */
export function sameBytes(file: Buffer, described: string | undefined, where: string, own?: string): Buffer {
  if (described !== undefined && (own ?? digestOf(file)) !== described)
    throw new UserError(`${where}: the file has changed since this command read it`, 'start the command again');
  return file;
}

/** What `run` returns; undefined where the system or a damaged entry forbids it. A cache that fails is no error. */
function attempt<T>(run: () => T): T | undefined {
  try {
    return run();
  } catch {
    return undefined;
  }
}

/** The folder of the entries, where nobody else can write to it; made where it is not yet. */
function trustedFolder(): string | undefined {
  const { cacheDir } = readSettings();
  if (cacheDir === undefined) return undefined;
  const root = resolve(cacheDir);
  const folder = join(root, 'tokenizers');
  makeFolder(folder, 0o700);
  return [root, folder].every((path) => intruder(statSync(path)) === undefined) ? folder : undefined;
}

/** The cache for a file of a tokenizer; undefined where it is small, or there is no cache that can be trusted. */
export function cacheFor(file: Buffer): FileCache | undefined {
  const folder = file.length < WORTH_BYTES ? undefined : attempt(trustedFolder);
  return folder === undefined ? undefined : { folder, digest: digestOf(file) };
}

/** The bytes of an entry that only this user and root can change; undefined where there is none. */
function read(path: string): Buffer | undefined {
  const status = lstatSync(path, { throwIfNoEntry: false });
  if (status === undefined || !status.isFile() || intruder(status) !== undefined) return undefined;
  const bytes = readBounded(path, MAX_BYTES);
  // Entries that were unused longest are removed first.
  const now = new Date();
  utimesSync(path, now, now);
  return bytes;
}

/** `about`: what else decides about the entry. */
const pathOf = ({ folder, digest }: FileCache, about: unknown): string =>
  join(folder, `${digestOf(JSON.stringify([VERSION, digest, about]))}.json`);

/** An entry has the SHA-256 of its JSON before it: a changed digit leaves valid JSON. */
const DIGEST_LENGTH = 64;

function readEntry<T>(path: string, schema: z.ZodType<T>): T | undefined {
  return attempt(() => {
    const bytes = read(path);
    const json = bytes?.subarray(DIGEST_LENGTH);
    if (json === undefined || bytes?.toString('latin1', 0, DIGEST_LENGTH) !== digestOf(json)) return undefined;
    return schema.safeParse(JSON.parse(decodeUtf8(json, path))).data;
  });
}

function keepEntry(path: string, value: unknown): void {
  const json = JSON.stringify(value);
  writeEntry(path, digestOf(json) + json);
}

const writeEntry = (path: string, content: string | Uint8Array): boolean =>
  attempt(() => {
    writeAtomically(path, [content]);
    return true;
  }) ?? false;

/**
 * The facts of a file, beside which lies what `beside` says: from the cache, or by `find`, which throws UserError where
 * the file is refused. Those that are found are kept.
 */
export function tokenizerFacts(
  cache: FileCache | undefined,
  beside: unknown,
  find: () => TokenizerFacts,
): TokenizerFacts {
  if (cache === undefined) return find();
  const path = pathOf(cache, beside);
  const known = readEntry(path, facts);
  if (known !== undefined) return known;
  const found = find();
  keepEntry(path, found);
  return found;
}

/** What the checked text of a tokenizer does not say by itself. */
export interface AboutTokenizer {
  /** The tokens that the file puts around a text. */
  readonly beside: TokensAround;
  /** Undefined where its decoder is not supported: texts cannot be made of tokens. */
  readonly decoders?: readonly Decoder[];
  /** The added tokens of the file itself, and those of them that texts leave out. */
  readonly added: readonly string[];
  readonly special: readonly string[];
  /** Whether texts may be cut where a line begins. */
  readonly cutsLines: boolean;
}
const about = z.strictObject({
  beside: z.strictObject({ before: ids, after: ids }),
  decoders: decoderList.exactOptional(),
  added: z.array(text).max(MAX_ADDED),
  special: z.array(text).max(MAX_ADDED),
  cutsLines: z.boolean(),
});
/** `text`: SHA-256 of what was written for the library, which is an entry of that name. */
const kept = z.strictObject({ about, text: z.string().regex(/^[0-9a-f]{64}$/) });

/** What was checked and written for the library before, as a file; undefined where there is none, or it is damaged. */
export function keptTokenizer(cache: FileCache): { readonly about: AboutTokenizer; readonly path: string } | undefined {
  const entry = readEntry(pathOf(cache, TEXT), kept);
  if (entry === undefined) return undefined;
  const path = join(cache.folder, `${entry.text}.json`);
  const bytes = attempt(() => read(path));
  return bytes !== undefined && digestOf(bytes) === entry.text ? { about: entry.about, path } : undefined;
}

/** Keeps a tokenizer that was checked as it is written for the library; its path, or undefined where it cannot be. */
export function keepTokenizer(cache: FileCache, json: TokenizerJson): string | undefined {
  const text = writeTokenizerJson(json);
  const digest = digestOf(text);
  const path = join(cache.folder, `${digest}.json`);
  if (!writeEntry(path, text)) return undefined;
  keepEntry(pathOf(cache, TEXT), { about: aboutOf(json), text: digest });
  return path;
}

export const aboutOf = (json: TokenizerJson): AboutTokenizer => ({
  beside: json.beside,
  ...defined({ decoders: json.decoders }),
  added: json.added.map(({ content }) => content),
  special: json.added.filter(({ special }) => special).map(({ content }) => content),
  cutsLines: mayCutLines(json),
});
