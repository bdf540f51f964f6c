/**
 * A model that is made up, whose answers depend on every token that lies in the rows of the keys it is told to read.
 * Its memory is that of a device: it outlives steps, is shared by sequences, and holds anything once it is lost or
 * mapped anew. A sequence that reads another's rows, or rows of old tokens, gets other tokens.
 */
import { SequenceTable, type StepInputs } from '../../driver/devices/sequenceTable.js';
import {
  type DeviceModel,
  type FilteredAnswer,
  StateLost,
  type StepAnswer,
  type StepLimits,
  type StepMessage,
} from '../../engine/device.js';
import { PAGE_TOKENS } from '../../engine/pages.js';

export interface RememberingOptions {
  /** Pages that it has addresses for, all of which have memory at first. */
  readonly pages: number;
  readonly maxLength: number;
  readonly vocab: number;
  readonly limits?: Partial<StepLimits>;
  /** Models with another one give other answers. */
  readonly seed?: number;
  /** One in so many rows has a value that is not finite; 0: none. */
  readonly failsOneIn?: number;
  /** Turns of the event loop that a step takes. */
  readonly turns?: () => number;
}

export interface Remembering {
  readonly model: DeviceModel;
  table(): SequenceTable;
  /** The next step finds the device gone. */
  lose(): void;
}

const TOP = 8;
const ROTATION = 13;

/** A hash of 32 bits that depends on the order of what is mixed in. */
function mix(hash: number, value: number): number {
  const mixed = Math.imul(hash ^ value, 0x9e3779b1);
  return (mixed << ROTATION) | (mixed >>> (32 - ROTATION));
}
const natural = (hash: number, below: number): number => ((hash ^ (hash >>> 16)) >>> 0) % below;
const logProbOf = (hash: number): number => -natural(hash, 1 << 16) / (1 << 12);

export function remembering(options: RememberingOptions): Remembering {
  const { pages, maxLength, vocab, seed = 0, failsOneIn = 0, turns = () => 1 } = options;
  const limits: StepLimits = { tokens: 64, keys: 2048, filtered: 16, entries: 256, ...options.limits };
  const { keptRows } = limits;
  const memory = new Int32Array(pages * PAGE_TOKENS);
  const drawn = new Int32Array(keptRows ?? 0);
  let mapped = pages;
  let isLost = false;
  const begin = (): SequenceTable => {
    memory.fill(-1);
    return new SequenceTable({ pages: mapped, keys: limits.keys, maxLength, keptRows, filters: true });
  };
  let table = begin();

  /** What is known of the path of a new token. */
  const pathOf = ({ begin: first, position, key }: StepInputs, at: number): number => {
    let hash = mix(seed, 1);
    for (let i = first[at]!; i <= first[at]! + position[at]!; i++) hash = mix(hash, memory[key[i]!]!);
    return hash;
  };

  const compute = (inputs: StepInputs): StepAnswer | Error => {
    const { tokens, isFed, feed, keep, keepFiltered, row, target, inverseTemperature, keyLow, keyHigh, slot } = inputs;
    for (let i = 0; i < tokens.length; i++) memory[slot[i]!] = isFed?.[i] === 1 ? drawn[feed![i]!]! : tokens[i]!;
    const paths = Array.from(row, (at) => pathOf(inputs, at));
    const filtered = inputs.topK!.length;
    const draw = (path: number, i: number): number =>
      inverseTemperature![i]! > 0
        ? mix(mix(mix(path, keyLow![i]!), keyHigh![i]!), Math.round(inverseTemperature![i]! * 1024))
        : path;
    const hashes = paths.map((path, i) => (i < filtered ? mix(draw(path, i), filterHash(inputs, i)) : draw(path, i)));
    for (const [i, hash] of hashes.entries()) {
      const place = i < filtered ? keepFiltered?.[i] : keep?.[i];
      if (place !== undefined && place >= 0) drawn[place] = natural(hash, vocab);
    }
    const rows = paths.flatMap((path, i) => (failsOneIn > 0 && natural(mix(path, 7), failsOneIn) === 0 ? [i] : []));
    if (rows.length > 0) return Object.assign(new Error('not finite'), { rows });
    const plain = paths.map(draw);
    return {
      logProb: Float32Array.from(paths, (path, i) => logProbOf(mix(path, target![i]!))),
      isArgmax: Int32Array.from(paths, (path, i) => (natural(path, vocab) === target![i] ? 1 : 0)),
      nextToken: Int32Array.from(plain, (hash) => natural(hash, vocab)),
      nextTokenLogProb: Float32Array.from(plain, (hash) => logProbOf(mix(hash, 3))),
      ...(filtered === 0 ? {} : { filtered: filteredAnswer(hashes.slice(0, filtered), vocab) }),
    };
  };

  let last = Promise.resolve();
  const later = async (): Promise<void> => {
    const before = last;
    const own = (async () => {
      for (let left = turns(); left > 0; left--) await new Promise((resolve) => setImmediate(resolve));
      await before;
    })();
    await (last = own);
  };
  return {
    table: () => table,
    lose: () => (isLost = true),
    model: {
      limits,
      maxLength,
      vocab,
      maxPages: pages,
      mappedPages: pages,
      piecePages: 1,
      pieceBytes: PAGE_TOKENS * 4,
      step: async (message: StepMessage) => {
        if (isLost) {
          await later();
          throw new StateLost('gone');
        }
        const { inputs, copies } = table.apply(message);
        copies?.from.forEach((from, i) => {
          const first = from * PAGE_TOKENS;
          memory.copyWithin(copies.to[i]! * PAGE_TOKENS, first, first + copies.rows[i]!);
        });
        const answer = compute(inputs);
        await later();
        if (answer instanceof Error) throw answer;
        return answer;
      },
      resize: async (wanted) => {
        await later();
        table.resize(wanted);
        memory.fill(-1, Math.min(wanted, mapped) * PAGE_TOKENS);
        return (mapped = wanted);
      },
      isLost: () => isLost,
      recovered: async () => {
        await later();
        mapped = pages;
        table = begin();
        isLost = false;
      },
    },
  };
}

/** What the filters of row `i` say, whatever the order of its list. */
function filterHash(inputs: StepInputs, i: number): number {
  const { topK, topP, minLogP, repetition, presence, frequency, first, end } = inputs;
  const { entryToken, entryBias, entryCount, isGenerated } = inputs;
  let list = 0;
  for (let at = first![i]!; at < end![i]!; at++)
    // A token without a bias that has not come says nothing.
    if (entryBias![at] !== 0 || entryCount![at]! >= 0)
      list += mix(mix(mix(5, entryToken![at]!), Math.round(entryBias![at]! * 64)), entryCount![at]!) >>> 8;
  const numbers = [topK, topP, minLogP, repetition, presence, frequency].map((each) => Math.round(each![i]! * 64));
  return [...numbers, isGenerated![i]!, list].reduce(mix, 11);
}

function filteredAnswer(hashes: readonly number[], vocab: number): FilteredAnswer {
  const top = hashes.flatMap((hash) => Array.from({ length: TOP }, (_, i) => mix(hash, i)));
  return {
    token: Int32Array.from(hashes, (hash) => natural(hash, vocab)),
    logProb: Float32Array.from(hashes, (hash) => logProbOf(mix(hash, 2))),
    topTokens: Int32Array.from(top, (hash) => natural(hash, vocab)),
    topLogProbs: Float32Array.from(top, logProbOf),
  };
}
