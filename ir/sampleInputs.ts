/** What the op and the kernel that choose tokens read beside logits: one list for types, verifiers and both oracles. */
import type { RowDraw, RowFilters, TokenEntry } from './filters.js';

/**
 * The inputs by name. `row`: an element for each row of logits; the buffer may have more rows. `entry`: an element of
 * the lists of tokens whose logits change. `token`: one for each token of the call.
 * `mask`: one for each mask of the call, a row of ⌈vocabulary / 32⌉ words.
 * - A row's entries are those from `first` to before `end`, as far as there are such. No token comes twice.
 * - Row r of logits follows the token pathToken[pathRow[r]]. Where isGenerated[r] is 1, that token was generated, and
 *   counts once more than the entries say. So the host need not know it yet.
 * - Where maskRow[r] is a row of `mask`, row r is given a token of that mask: bit t % 32 of word t >> 5 stands for
 *   token t. At −1 any token may be chosen.
 */
export const SAMPLE_INPUTS = {
  inverseTemperature: { dtype: 'f32', per: 'row' },
  low: { dtype: 'i32', per: 'row' },
  high: { dtype: 'i32', per: 'row' },
  topK: { dtype: 'i32', per: 'row' },
  topP: { dtype: 'f32', per: 'row' },
  minLogP: { dtype: 'f32', per: 'row' },
  repetition: { dtype: 'f32', per: 'row' },
  presence: { dtype: 'f32', per: 'row' },
  frequency: { dtype: 'f32', per: 'row' },
  first: { dtype: 'i32', per: 'row' },
  end: { dtype: 'i32', per: 'row' },
  entryToken: { dtype: 'i32', per: 'entry' },
  entryBias: { dtype: 'f32', per: 'entry' },
  entryCount: { dtype: 'i32', per: 'entry' },
  pathToken: { dtype: 'i32', per: 'token' },
  pathRow: { dtype: 'i32', per: 'row' },
  isGenerated: { dtype: 'i32', per: 'row' },
  maskRow: { dtype: 'i32', per: 'row' },
  mask: { dtype: 'i32', per: 'mask' },
} as const;

export type SampleInput = keyof typeof SAMPLE_INPUTS;
export const SAMPLE_INPUT_NAMES = Object.keys(SAMPLE_INPUTS) as readonly SampleInput[];

/** Vocabularies are smaller than this, so that sums over all tokens fit the parts that kernels add. */
export const MAX_SAMPLE_VOCAB = 1 << 19;

/** Most tokens that are found beside the chosen one. */
export const MAX_TOP_TOKENS = 32;

/** Words of the mask of a vocabulary. */
export const maskWords = (vocab: number): number => Math.ceil(vocab / 32);

/** Something for each input. */
export const mapInputs = <T>(of: (name: SampleInput) => T): Readonly<Record<SampleInput, T>> =>
  Object.fromEntries(SAMPLE_INPUT_NAMES.map((name) => [name, of(name)])) as Record<SampleInput, T>;

/** The numbers behind the inputs. */
export type SampleNumbers = Readonly<Record<SampleInput, ArrayLike<number>>>;

/** What row `row` is chosen by. Throws where an index lies outside. */
export function rowSampling(
  from: SampleNumbers,
  row: number,
  vocab: number,
): {
  readonly filters: RowFilters;
  readonly draw: RowDraw;
  readonly entries: readonly TokenEntry[];
  readonly mask: ArrayLike<number> | undefined;
} {
  const at = (name: SampleInput, index: number, limit = Infinity): number => {
    const value = from[name][index];
    if (value === undefined || (limit < Infinity && !(Number.isInteger(value) && value >= 0 && value < limit)))
      throw new Error(`${name}[${index}] is ${value}, which is not a number below ${limit}.`);
    return value;
  };
  const entries = new Map<number, TokenEntry>();
  const end = Math.min(at('end', row), from.entryToken.length);
  for (let i = Math.max(0, at('first', row)); i < end; i++) {
    const token = at('entryToken', i, vocab);
    if (entries.has(token)) throw new Error(`entryToken[${i}] = ${token} comes twice in the list of row ${row}.`);
    entries.set(token, { token, bias: at('entryBias', i), count: at('entryCount', i) });
  }
  if (at('isGenerated', row) === 1) {
    const token = at('pathToken', at('pathRow', row, from.pathToken.length), vocab);
    const { bias = 0, count = 0 } = entries.get(token) ?? {};
    entries.set(token, { token, bias, count: Math.max(0, count) + 1 });
  }
  return {
    filters: {
      topK: at('topK', row),
      topP: at('topP', row),
      minLogP: at('minLogP', row),
      repetition: at('repetition', row),
      presence: at('presence', row),
      frequency: at('frequency', row),
    },
    draw: { inverseTemperature: at('inverseTemperature', row), low: at('low', row), high: at('high', row) },
    entries: [...entries.values()],
    mask: maskOf(from, at('maskRow', row), vocab),
  };
}

/** The mask of row `maskRow`; undefined for −1. Throws where there is none. */
function maskOf({ mask }: SampleNumbers, maskRow: number, vocab: number): ArrayLike<number> | undefined {
  if (maskRow === -1) return undefined;
  const words = maskWords(vocab);
  if (!(Number.isInteger(maskRow) && maskRow >= 0 && (maskRow + 1) * words <= mask.length))
    throw new Error(`maskRow is ${maskRow}, where there are ${Math.floor(mask.length / words)} masks.`);
  return Array.from({ length: words }, (_, i) => mask[maskRow * words + i]!);
}
