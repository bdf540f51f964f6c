/**
 * `npm run bench:tokenizers -- [FOLDER …]`: how long tokenizers take to open, beside what the native library alone
 * takes to read the same file, and what the text of a token costs. Without folders, for made-up tokenizers of the sizes
 * of Gemma 3, gpt-oss, Llama 3.1 and Llama 2. Each opening is a process of its own; the three kinds take turns, and
 * figures are medians.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Command, Option } from 'commander';
import { Tokenizer } from 'tokenizers';
import { TextStream } from '../engine/textStream.js';
import { describeTokenizer, jsonOf } from '../models/tokenizer/files.js';
import { createNative, createTokenizer, openTokenizer } from '../models/tokenizer/tokenizer.js';
import { median } from '../autotune/records.js';
import { benchCommand, runProgram } from './command.js';

const ROUNDS = 5;
const SELF = fileURLToPath(import.meta.url);

interface OpeningTime {
  readonly wall: number;
  readonly cpu: number;
}

function openOnce(dir: string, how: 'library' | 'ours', cache: string): OpeningTime {
  const options = { encoding: 'utf8', env: { TILEWRIGHT_CACHE: cache } } as const;
  return JSON.parse(execFileSync(process.execPath, [SELF, '--open', how, dir], options)) as OpeningTime;
}

function measure(dir: string, scratch: string): void {
  const found = { library: [] as OpeningTime[], first: [] as OpeningTime[], again: [] as OpeningTime[] };
  for (let round = 0; round < ROUNDS; round++) {
    const cache = mkdtempSync(join(scratch, 'cache-'));
    found.library.push(openOnce(dir, 'library', cache));
    found.first.push(openOnce(dir, 'ours', cache));
    found.again.push(openOnce(dir, 'ours', cache));
  }
  const shown = (runs: readonly OpeningTime[]): string =>
    (['wall', 'cpu'] as const)
      .map((key) =>
        median(runs.map((run) => run[key]))
          .toFixed(2)
          .padStart(6),
      )
      .join(' ');
  const ratio = (runs: readonly OpeningTime[]): string =>
    (median(runs.map(({ cpu }) => cpu)) / median(found.library.map(({ cpu }) => cpu))).toFixed(2).padStart(6);
  const megabytes = (statSync(join(dir, 'tokenizer.json')).size / 1e6).toFixed(1).padStart(6);
  console.log(
    `${basename(dir).padEnd(12)} ${megabytes} | ${shown(found.library)} | ${shown(found.first)} ` +
      `${ratio(found.first)} | ${shown(found.again)} ${ratio(found.again)}`,
  );
}

/** Made-up tokenizers with the sizes and settings of published ones, to measure how fast they are opened. */

export interface TokenizerShape {
  readonly name: string;
  readonly pieces: number;
  /** About as many merges as this for each piece, or all that there are. */
  readonly mergesPerPiece: number;
  readonly added: number;
  /** Merges are pairs, as newer versions of the library write them, or texts with a space. */
  readonly hasPairs: boolean;
  /** How texts become pieces: bytes behind a regular expression, words with a mark, or whole texts. */
  readonly kind: 'bytes' | 'words' | 'whole';
}

/** Sizes of published tokenizer.json files. */
export const SHAPES: readonly TokenizerShape[] = [
  { name: 'gemma-3', pieces: 262_144, mergesPerPiece: 1.96, added: 6_400, hasPairs: true, kind: 'words' },
  { name: 'gpt-oss', pieces: 199_998, mergesPerPiece: 2.23, added: 21, hasPairs: true, kind: 'bytes' },
  { name: 'llama-3.1', pieces: 128_000, mergesPerPiece: 2.19, added: 256, hasPairs: false, kind: 'bytes' },
  { name: 'llama-2', pieces: 32_000, mergesPerPiece: 1.91, added: 3, hasPairs: false, kind: 'whole' },
];

/** Earlier letters are more frequent. */
const SKEW = 2;
const CL100K =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" +
  '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';

/** Whole numbers below `limit`, always the same. */
function numbers(): (limit: number) => number {
  let state = 0x2545f491;
  return (limit) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % limit;
  };
}

/** The letters of byte-level pieces, or letters of several scripts. */
function alphabet(kind: TokenizerShape['kind']): string[] {
  const range = (from: number, to: number): string[] =>
    Array.from({ length: to - from }, (_, i) => String.fromCodePoint(from + i));
  return kind === 'bytes'
    ? [...range(33, 127), ...range(161, 173), ...range(174, 256), ...range(256, 324)]
    : ['▁', ...range(97, 123), ...range(33, 97), ...range(0x430, 0x450), ...range(0x4e00, 0x4e00 + 3000)];
}

/** Parts of a word, all of whose neighbours are joined to pieces. */
const PARTS = 6;
const MAX_LETTERS = 20;

/** Pieces that are made of words, and all ways to make each of two others. */
function vocabularyOf({ pieces, mergesPerPiece, kind }: TokenizerShape): {
  vocab: string[];
  merges: [string, string][];
} {
  const next = numbers();
  const letters = alphabet(kind);
  const bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`);
  const texts = [...(kind === 'bytes' ? [] : ['<unk>', '<s>', '</s>', ...bytes]), ...letters];
  const known = new Set(texts);
  const merges: [string, string][] = [];
  const add = (piece: string): void => {
    if (texts.length === pieces || piece.length > MAX_LETTERS || known.has(piece)) return;
    texts.push(piece);
    known.add(piece);
    for (let at = 1; at < piece.length && merges.length < pieces * mergesPerPiece; at++) {
      const [left, right] = [piece.slice(0, at), piece.slice(at)];
      if (known.has(left) && known.has(right)) merges.push([left, right]);
    }
  };
  const draw = (): string => letters[Math.floor((next(1 << 20) / (1 << 20)) ** SKEW * letters.length)]!;
  while (texts.length < pieces) {
    const marked = kind !== 'bytes' && next(2) === 0;
    const word = Array.from({ length: PARTS }, (_, i) =>
      marked && i === 0 ? '▁' : draw().replace('▁', 'e') + draw().replace('▁', 'a'),
    );
    for (let length = 1; length <= PARTS; length++)
      for (let from = 0; from + length <= PARTS; from++) add(word.slice(from, from + length).join(''));
  }
  return { vocab: texts, merges };
}

/** The text of such a tokenizer.json, with line breaks as the library writes them. */
export function tokenizerText(shape: TokenizerShape): string {
  const { kind, hasPairs, added, pieces } = shape;
  const { vocab, merges } = vocabularyOf(shape);
  const extra = Array.from({ length: added }, (_, i) => `<|reserved_${i}|>`);
  // Gemma's are pieces of the vocabulary, others lie behind it.
  const inside = kind === 'words';
  const entries = vocab.map((text, id) => [inside && id >= pieces - added ? extra[id - pieces + added]! : text, id]);
  const gone = new Set(inside ? vocab.slice(pieces - added) : []);
  const there = merges.filter(([left, right]) => !gone.has(left) && !gone.has(right) && !gone.has(left + right));
  const marks = { type: 'Replace', pattern: { String: ' ' }, content: '▁' };
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };
  const split = (pattern: object, behavior: string): object => ({ type: 'Split', pattern, behavior, invert: false });
  const json = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: extra.map((content, i) => ({
      id: inside ? pieces - added + i : kind === 'whole' ? i : pieces + i,
      content: kind === 'whole' ? vocab[i] : content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: {
      bytes: null,
      words: marks,
      whole: { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: '▁' }, marks] },
    }[kind],
    pre_tokenizer: {
      bytes: { type: 'Sequence', pretokenizers: [split({ Regex: CL100K }, 'Isolated'), byteLevel] },
      words: split({ String: ' ' }, 'MergedWithPrevious'),
      whole: null,
    }[kind],
    post_processor: null,
    decoder:
      kind === 'bytes' ? byteLevel : { type: 'Sequence', decoders: [{ type: 'ByteFallback' }, { type: 'Fuse' }] },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: kind === 'bytes' ? null : '<unk>',
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: kind !== 'bytes',
      byte_fallback: kind !== 'bytes',
      ignore_merges: kind === 'bytes',
      vocab: Object.fromEntries(entries),
      merges: hasPairs ? there : there.map((pair) => pair.join(' ')),
    },
  };
  return JSON.stringify(json, null, 2);
}

/** Writes the tokenizer.json of a shape into the folder `dir`. */
export const writeTokenizer = (shape: TokenizerShape, dir: string): void =>
  writeFileSync(join(dir, 'tokenizer.json'), tokenizerText(shape));

/** Opens the tokenizer of a folder once, and says what that took. */
function openHere(how: string, dir: string): OpeningTime {
  const started = performance.now();
  const before = process.cpuUsage();
  if (how === 'library') Tokenizer.fromFile(join(dir, 'tokenizer.json'));
  else openTokenizer(dir);
  const { user, system } = process.cpuUsage(before);
  return { wall: (performance.now() - started) / 1000, cpu: (user + system) / 1e6 };
}

const TEXT = 'The quick brown fox jumps over the lazy dog and says: “naïve café”, 12,345 times. 世界 😀\n';
const LIBRARY_TOKENS = 2_000;
/** Tokens that the library has to be given again with a new one, whose text may depend on them. */
const CONTEXT = 8;

/** Prints what the text of a token costs as tokens come, in microseconds: by the library, and by the table. */
async function measureTexts(dir: string): Promise<void> {
  const { spec } = describeTokenizer(dir);
  const tokenizer = createTokenizer(spec);
  const { tokenizer: native } = createNative(jsonOf(spec), dir, spec.tokens ?? []);
  const ids = await tokenizer.encode(TEXT.repeat(200));
  const library = await microseconds(LIBRARY_TOKENS, async () => {
    for (let i = CONTEXT; i < LIBRARY_TOKENS + CONTEXT; i++) {
      const before = ids.slice(i - CONTEXT, i);
      await Promise.all([native.decode(before, true), native.decode([...before, ids[i]!], true)]);
    }
  });
  const detokenizer = tokenizer.detokenizer();
  const stream = async (): Promise<number> =>
    microseconds(ids.length, () => {
      const text = new TextStream(detokenizer.stream(), ['\n\nQuestion:', '###']);
      for (const id of ids) text.push(id);
    });
  const first = await stream();
  const again: number[] = [];
  for (let round = 0; round < ROUNDS; round++) again.push(await stream());
  const shown = [library, first, median(again)].map((each) => each.toFixed(2).padStart(8));
  console.log(`${basename(dir).padEnd(12)} | ${shown.join(' | ')}`);
}

/** Microseconds of processor time for each of `count`. */
async function microseconds(count: number, run: () => Promise<void> | void): Promise<number> {
  const before = process.cpuUsage();
  await run();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / count;
}

const tokenizersCommand = (): Command =>
  benchCommand(
    'bench:tokenizers',
    `Opens the tokenizer.json of each folder, or made-up ones, ${ROUNDS} times with the native library alone, ` +
      `${ROUNDS} times for the first time (with an empty cache), and ${ROUNDS} times again. Prints medians of wall ` +
      "and processor time in seconds, and processor time as a multiple of the library's. Then prints how much " +
      'processor time the text of a token takes, token by token: by the library, and by the table for the first time ' +
      'and again.',
  )
    .argument('[folder...]', 'folders of tokenizers')
    .addOption(new Option('--open <how>').hideHelp());

async function main({ open }: { readonly open?: string }, operands: readonly unknown[]): Promise<void> {
  const [folders = []] = operands as readonly (readonly string[])[];
  if (open !== undefined) {
    console.log(JSON.stringify(openHere(open, folders[0] ?? '')));
    return;
  }
  const scratch = mkdtempSync(join(tmpdir(), 'tilewright-tokenizers-'));
  try {
    const made = folders.length > 0 ? [] : SHAPES;
    for (const shape of made) {
      mkdirSync(join(scratch, shape.name));
      writeTokenizer(shape, join(scratch, shape.name));
    }
    const dirs = [...folders.map((folder) => resolve(folder)), ...made.map(({ name }) => join(scratch, name))];
    console.log(`${''.padEnd(12)}     MB |    library    |      first time      |        again`);
    console.log(`${''.padEnd(12)}        |   wall   cpu |   wall   cpu  ratio |   wall   cpu  ratio`);
    for (const dir of dirs) measure(dir, scratch);
    console.log(`\n${''.padEnd(12)} |  library |    first |    again   (microseconds a token)`);
    for (const dir of dirs) await measureTexts(dir);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

await runProgram(import.meta.url, tokenizersCommand, main);
