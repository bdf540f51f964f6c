/** Which file of a checkpoint folder is its tokenizer, and its format, which is told by name and content. */
import type { Json } from '../model/model.js';
import { readdirSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError } from '../../errors.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import { decodeUtf8, fileSize, readBounded, readJsonObject, readRange, withFile } from '../../system/read.js';
import { convertTekken, convertTiktoken, isTiktoken, type TiktokenFacts } from './byRank.js';
import { type BpeFacts, convertBpeFiles } from './byteLevel.js';

export const MODEL_BYTES = 64 << 20;
const CONFIG_BYTES = 8 << 20;
const BEGINNING_BYTES = 1024;

export type TokenizerFormat = 'json' | 'sentencepiece' | 'tiktoken' | 'tekken' | 'bpe';

/** What a checkpoint says beside a tokenizer that does not say all: plain data. */
export type FolderFacts = TiktokenFacts & BpeFacts;

/** Names of tokenizers, in the order of preference. A RegExp: of several files that which sorts last. */
const NAMES: readonly (string | RegExp)[] = [
  'tokenizer.json',
  'tekken.json',
  'tokenizer.model',
  /^tokenizer\.model\.v\d{1,3}(?:m\d{1,3})?$/,
  'tiktoken.model',
  /^[\w-]{1,100}\.tiktoken$/,
  'vocab.json',
];
const MERGES = 'merges.txt';
/** Files that may say something of tokens, for messages. */
const RELATED = /token|vocab|merges|spiece|sentencepiece|\.bpe/i;

function namesIn(dir: string): readonly string[] {
  try {
    return readdirSync(dir).sort();
  } catch {
    return [];
  }
}

/** The tokenizer file of a checkpoint folder; undefined if there is none that may be read. */
export function findTokenizer(dir: string): string | undefined {
  const names = namesIn(dir);
  for (const name of NAMES) {
    const found = typeof name === 'string' ? name : names.filter((each) => name.test(each)).at(-1);
    if (found === undefined || fileSize(resolve(dir, found)) === undefined) continue;
    if (found === 'vocab.json' && fileSize(join(dir, MERGES)) === undefined) continue;
    return resolve(dir, found);
  }
  return undefined;
}

/** Names of the files that hold the tokenizer of a folder. */
export function tokenizerFileNames(dir: string): readonly string[] {
  const path = findTokenizer(dir);
  if (path === undefined) return [];
  const name = basename(path);
  return name === 'vocab.json' ? [name, MERGES] : [name];
}

/** The error for a folder without a tokenizer. It names what lies there instead. */
export function noTokenizer(dir: string): UserError {
  const others = namesIn(dir).filter((name) => RELATED.test(name) && name !== 'tokenizer_config.json');
  const there =
    others.length === 0
      ? ''
      : `; there ${others.length === 1 ? 'is' : 'are'} ${quote(others.slice(0, 6).join(', '), 200).slice(1, -1)}`;
  const vocab = others.includes('vocab.json') ? ' (vocab.json is read with the merges.txt that belongs to it)' : '';
  return new UserError(
    `${resolve(dir)}: found no tokenizer: neither tokenizer.json nor tokenizer.model, tekken.json, or vocab.json and ` +
      `merges.txt${there}${vocab}`,
    'copy the tokenizer of the model into the folder; docs/families.md lists the formats that are read',
  );
}

/** The format of a tokenizer file. Throws UserError if it is no tokenizer but a pointer to one. */
export function formatOf(path: string): TokenizerFormat {
  const begin = withFile(path, (fd, size) => readRange(fd, 0, Math.min(size, BEGINNING_BYTES)));
  if (begin.toString('latin1').startsWith('version https://git-lfs'))
    throw new UserError(`${path}: not the file itself but a pointer of Git LFS to it`, 'fetch it: git lfs pull');
  switch (basename(path)) {
    case 'tokenizer.json':
      return 'json';
    case 'tekken.json':
      return 'tekken';
    case 'vocab.json':
      return 'bpe';
    default:
      return isTiktoken(begin) || !/\.model(?:\.|$)/.test(path) ? 'tiktoken' : 'sentencepiece';
  }
}

function jsonBeside(dir: string, name: string): Json {
  const path = join(dir, name);
  return fileSize(path) === undefined ? {} : readJsonObject(path, CONFIG_BYTES, `download ${name} again`).value;
}

/** What config.json, params.json and tokenizer_config.json say that the converters of such formats need. */
export function factsBeside(path: string, embeddings?: number): FolderFacts {
  const dir = dirname(path);
  const [config, params] = [jsonBeside(dir, 'config.json'), jsonBeside(dir, 'params.json')];
  const tokenizer = jsonBeside(dir, 'tokenizer_config.json');
  const vocabSize = embeddings ?? config['vocab_size'] ?? params['vocab_size'];
  const rotary = [config['rope_scaling'], config['rope_parameters']].find(isRecord);
  const hasModel = Object.keys(config).length + Object.keys(params).length > 0;
  const [className, modelType] = [tokenizer['tokenizer_class'], config['model_type']];
  return {
    ...(typeof vocabSize === 'number' ? { vocabSize } : {}),
    ...(hasModel ? { isScaled: params['use_scaled_rope'] === true || rotary?.['rope_type'] === 'llama3' } : {}),
    ...(typeof className === 'string' ? { className } : {}),
    ...(typeof modelType === 'string' ? { modelType } : {}),
    ...(tokenizer['add_prefix_space'] === true ? { addsSpace: true } : {}),
    isAlone: !isGiven(tokenizer['added_tokens_decoder']) && fileSize(join(dir, 'added_tokens.json')) === undefined,
  };
}

const read = (path: string): Buffer => readBounded(path, MODEL_BYTES, 'download the file again');
const readText = (path: string): string => decodeUtf8(read(path), path, 'download the file again');

/** The tokenizer.json (its text) that gives the tokens of a file in such a format. Throws UserError. */
export function convertFile(format: 'tiktoken' | 'tekken' | 'bpe', path: string, facts: FolderFacts): string {
  switch (format) {
    case 'tiktoken':
      return convertTiktoken(read(path), path, facts);
    case 'tekken':
      return convertTekken(readText(path), path);
    case 'bpe': {
      const mergesPath = join(dirname(path), MERGES);
      return convertBpeFiles(
        { vocab: readText(path), vocabPath: path, merges: readText(mergesPath), mergesPath },
        facts,
      );
    }
    default:
      return format satisfies never;
  }
}
