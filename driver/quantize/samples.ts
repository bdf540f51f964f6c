/** Texts that show a model the inputs that it is quantized for: pieces of one file, of the same length. */
import { UserError } from '../../errors.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { createTokenizer, type Tokenizer } from '../../models/tokenizer/tokenizer.js';
import { decodeUtf8, readBounded } from '../../system/read.js';
import { counted } from '../../system/text.js';

/** Largest file of calibration text: enough for the largest number of samples many times over. */
const MAX_BYTES = 64 << 20;

const DEFAULT_LENGTH = 512;

export interface CalibrationOptions {
  readonly file: string;
  readonly samples: number;
  /** Tokens of a sample. Default: 512, or as many as the model has positions. */
  readonly length?: number;
  readonly seed: number;
}

/** SplitMix32: whole numbers below 2^32. */
function randomNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let z = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  };
}

/** `count` different numbers below `most`, in order; all of them where there are no more. */
function draw(count: number, most: number, seed: number): readonly number[] {
  const all = Array.from({ length: most }, (_, i) => i);
  const next = randomNumbers(seed);
  for (let i = 0; i < Math.min(count, most); i++) {
    const other = i + (next() % (most - i));
    [all[i], all[other]] = [all[other]!, all[i]!];
  }
  return all.slice(0, count).sort((a, b) => a - b);
}

/** Characters that are encoded at once: the tokenizer keeps some hundred bytes for each of them meanwhile. */
const PIECE = 1 << 20;

/** Where the piece of a text that begins at `from` ends: behind a line, or a word, or a character. */
export function pieceEnd(text: string, from: number, most = PIECE): number {
  const limit = from + most;
  if (limit >= text.length) return text.length;
  for (const end of ['\n', ' ']) {
    const at = text.lastIndexOf(end, limit - 1);
    if (at >= from) return at + 1;
  }
  const isHalf = /[\uD800-\uDBFF]/.test(text[limit - 1]!);
  return isHalf && most > 1 ? limit - 1 : limit;
}

/** The tokens of a text, encoded piece by piece. */
async function tokensOf(tokenizer: Pick<Tokenizer, 'encodeWritten'>, text: string): Promise<readonly number[]> {
  const found: number[] = [];
  for (let from = 0; from < text.length;) {
    const end = pieceEnd(text, from);
    for (const token of await tokenizer.encodeWritten(text.slice(from, end))) found.push(token);
    from = end;
  }
  return found;
}

/**
 * Samples of the file's tokens, drawn from its stretches of `length`: the same for the same seed. Every sample begins
 * as a text does, with the token of a beginning where the tokenizer adds one. Throws UserError, one line.
 */
export async function readSamples(
  { path, config }: Pick<Checkpoint, 'path' | 'config'>,
  { file, samples, seed, length = Math.min(DEFAULT_LENGTH, config.maxPositions) }: CalibrationOptions,
): Promise<readonly Int32Array[]> {
  if (length > config.maxPositions)
    throw new UserError(
      `samples of ${length} tokens: the model has ${config.maxPositions} positions`,
      `take samples of at most ${config.maxPositions} tokens`,
    );
  const hint = 'name a text file, about what the model will be used for';
  const text = decodeUtf8(readBounded(file, MAX_BYTES, hint), file, hint);
  if (text.trim() === '') throw new UserError(`${file}: the calibration text is empty`, hint);
  const tokenizer = createTokenizer(describeTokenizer(path, config.vocabSize).spec);
  const [begin] = await tokenizer.encode('');
  const first = begin !== undefined && begin === config.bosTokenId ? [begin] : [];
  const own = await tokensOf(tokenizer, text);
  const width = length - first.length;
  if (width < 1)
    throw new UserError(
      `samples of ${counted(length, 'token')}: a sample begins with the token of a beginning, and would have no other`,
      `take samples of at least ${length + 1} tokens`,
    );
  const stretches = Math.floor(own.length / width);
  if (stretches < 1)
    throw new UserError(
      `${file}: ${counted(own.length, 'token')} of calibration text, fewer than the ${length} of one sample`,
      'give a longer text, or take shorter samples',
    );
  return draw(samples, stretches, seed).map((at) =>
    Int32Array.from([...first, ...own.slice(at * width, (at + 1) * width)]),
  );
}
