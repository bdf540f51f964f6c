/**
 * A scorer without a model: a log-probability is a hash of exactly the tokens that a row may see, found through
 * subtreeEnd alone, and of their positions. A wrong tree gives wrong answers, and a batch that breaks the contract
 * throws.
 */
import type { MicroBatch, ScoredRows, Scorer } from '../../../evaluate/scorer.js';

const mix = (hash: number, value: number): number => {
  let h = Math.imul(hash ^ value, 0x9e3779b1);
  h = Math.imul(h ^ (h >>> 15), 0x85ebca6b);
  return h ^ (h >>> 13);
};

export const EMPTY = 0x1234567;
export const extend = (hash: number, token: number, position: number): number => mix(mix(hash, token), position + 1);
/** Between −12 and 0, as a float32. */
export const logProbOf = (hash: number, target: number): number =>
  Math.fround(-12 * ((mix(hash, target) >>> 0) / 2 ** 32) - 0.001);
export const isArgmaxOf = (hash: number, target: number): number => ((mix(hash, target ^ 77) >>> 0) % 3 === 0 ? 0 : 1);

function check(isTrue: boolean, what: string): void {
  if (!isTrue) throw new Error(`micro-batch: ${what}`);
}

/** Hash of the tokens visible to each token, including itself. */
function visibleHashes({ tokens, position, subtreeEnd }: MicroBatch): Int32Array {
  const count = tokens.length;
  check(position.length === count && subtreeEnd.length === count, 'columns of different lengths');
  const hashes = new Int32Array(count);
  const open: number[] = [];
  for (let q = 0; q < count; q++) {
    while (open.length > 0 && (subtreeEnd[open.at(-1) ?? 0] ?? 0) <= q) open.pop();
    const parent = open.at(-1);
    const end = subtreeEnd[q] ?? 0;
    check(
      end > q && end <= (parent === undefined ? count : (subtreeEnd[parent] ?? 0)),
      `subtreeEnd of token ${q} is not nested`,
    );
    check(
      position[q] === open.length,
      `token ${q} sees ${open.length} tokens before it but has position ${position[q]}`,
    );
    hashes[q] = extend(parent === undefined ? EMPTY : (hashes[parent] ?? 0), tokens[q] ?? -1, position[q] ?? -1);
    open.push(q);
  }
  return hashes;
}

export function scoreBatch(batch: MicroBatch): ScoredRows {
  const hashes = visibleHashes(batch);
  const { row, target } = batch;
  check(row.length === target.length, 'rows and targets differ in number');
  const logProb = new Float32Array(row.length),
    isArgmax = new Int32Array(row.length);
  for (let r = 0; r < row.length; r++) {
    const token = row[r] ?? -1;
    check(token >= 0 && token < hashes.length, `row ${r} is token ${token}`);
    check(
      r === 0 || token > (row[r - 1] ?? 0) || (token === row[r - 1] && (target[r] ?? 0) > (target[r - 1] ?? 0)),
      `row ${r} is out of order or repeated`,
    );
    logProb[r] = logProbOf(hashes[token] ?? 0, target[r] ?? 0);
    isArgmax[r] = isArgmaxOf(hashes[token] ?? 0, target[r] ?? 0);
  }
  return { logProb, isArgmax };
}

/** What the scorer's model says of a choice, computed without trees, rows or batches. */
export function referenceScore(context: Int32Array, continuation: Int32Array): { ll: number; isGreedy: boolean } {
  let hash = EMPTY,
    position = 0,
    ll = 0,
    isGreedy = true;
  for (const token of context) hash = extend(hash, token, position++);
  for (const token of continuation) {
    ll += logProbOf(hash, token);
    isGreedy &&= isArgmaxOf(hash, token) === 1;
    hash = extend(hash, token, position++);
  }
  return { ll, isGreedy };
}

export interface FakeScorer extends Scorer {
  readonly batches: MicroBatch[];
  /** The most micro-batches that were being scored at one time. */
  maxInFlight: number;
}

export interface FakeOptions extends Partial<
  Pick<Scorer, 'maxTokens' | 'maxRows' | 'maxLength' | 'inFlight' | 'replicas' | 'devices' | 'cost'>
> {
  /** Runs before each micro-batch is scored; may wait or throw. */
  readonly before?: (batch: MicroBatch, index: number) => Promise<void> | void;
  /** Alters results. */
  readonly after?: (scored: ScoredRows, index: number) => void;
}

export function fakeScorer(options: FakeOptions = {}): FakeScorer {
  let inFlight = 0;
  const scorer: FakeScorer = {
    maxTokens: options.maxTokens ?? 512,
    maxRows: options.maxRows ?? 512,
    maxLength: options.maxLength ?? 256,
    inFlight: options.inFlight ?? 1,
    replicas: options.replicas ?? 1,
    devices: options.devices ?? 1,
    cost: options.cost ?? ((tokens, rows, longest) => 1e-3 + tokens * 1e-5 + rows * 1e-6 + longest * 1e-6),
    batches: [],
    maxInFlight: 0,
    async score(batch) {
      check(batch.tokens.length <= scorer.maxTokens, `${batch.tokens.length} tokens exceed ${scorer.maxTokens}`);
      check(batch.row.length <= scorer.maxRows, `${batch.row.length} rows exceed ${scorer.maxRows}`);
      check(
        batch.position.every((position) => position < scorer.maxLength),
        'a path is too long',
      );
      const index = scorer.batches.push(batch) - 1;
      scorer.maxInFlight = Math.max(scorer.maxInFlight, ++inFlight);
      try {
        await options.before?.(batch, index);
        const scored = scoreBatch(batch);
        options.after?.(scored, index);
        return scored;
      } finally {
        inFlight--;
      }
    },
  };
  return scorer;
}
