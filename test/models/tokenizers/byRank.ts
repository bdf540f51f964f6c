/** Byte-pair encoding by its definition, for tests: of all neighbours, those whose union has the lowest rank merge. */

export type Random = () => number;

const latin = (text: string): string => Buffer.from(text).toString('latin1');

/** Tokens of `part`, as characters U+0000 to U+00FF, in quadratic time: the leftmost of equal pairs first. */
function mergeByRank(part: string, ranks: ReadonlyMap<string, number>): number[] {
  const whole = ranks.get(part);
  if (whole !== undefined) return [whole];
  const pieces = [...part];
  for (;;) {
    let [best, lowest] = [-1, Infinity];
    for (let i = 0; i + 1 < pieces.length; i++) {
      const rank = ranks.get(pieces[i]! + pieces[i + 1]!) ?? Infinity;
      if (rank < lowest) [best, lowest] = [i, rank];
    }
    if (best === -1) return pieces.map((piece) => ranks.get(piece)!);
    pieces.splice(best, 2, pieces[best]! + pieces[best + 1]!);
  }
}

/** Tokens of a text whose parts `expression` matches. */
export const encodeByRank = (text: string, ranks: ReadonlyMap<string, number>, expression: RegExp): number[] =>
  (text.match(expression) ?? []).flatMap((part) => mergeByRank(latin(part), ranks));

/** All bytes in some order, then `count` tokens that join earlier ones or are any bytes, in no order of length. */
export function randomRanks(random: Random, count: number, letters: string): Map<string, number> {
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)]!;
  const bytes = Array.from({ length: 256 }, (_, i) => String.fromCharCode((i * 37) % 256));
  const usual = [...latin(letters)];
  const tokens = new Set(usual);
  while (tokens.size < usual.length + count) {
    const all = [...tokens];
    const token = random() < 0.9 ? pick(all) + pick(all) : Array.from({ length: 4 }, () => pick(usual)).join('');
    if (token.length <= 12) tokens.add(token);
  }
  const joined = [...tokens].filter((token) => token.length > 1);
  // Some ranks are exchanged: a vocabulary need not have been trained.
  for (let i = 0; i < joined.length; i += 5) {
    const other = Math.floor(random() * joined.length);
    [joined[i], joined[other]] = [joined[other]!, joined[i]!];
  }
  return new Map([...bytes, ...joined].map((token, rank) => [token, rank]));
}

export const base64 = (bytes: string): string => Buffer.from(bytes, 'latin1').toString('base64');

/** The lines of a tiktoken file. */
export const tiktokenLines = (ranks: ReadonlyMap<string, number>): string[] =>
  [...ranks].map(([token, rank]) => `${base64(token)} ${rank}`);

/** The bytes of a tiktoken file. */
export const tiktokenFile = (lines: readonly string[]): Buffer => Buffer.from(`${lines.join('\n')}\n`);
