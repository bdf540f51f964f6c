/** A PathScorer without a model: each row of a cache holds a hash of the path up to the token that it belongs to. */
import type { PathBatch, PathScorer, ScoredRows, WalkLimits } from '../../../evaluate/scorer.js';
import { StateMemory } from '../../support/stateRows.js';
import { EMPTY, extend, isArgmaxOf, logProbOf } from './fakeScorer.js';

export interface FakePathOptions extends Partial<WalkLimits> {
  readonly lanes?: number;
  readonly inFlight?: number;
  /** Runs before each call; may wait, or throw what the call rejects with. `index`: of all calls, from 0. */
  readonly before?: (lane: number, index: number) => Promise<void> | void;
  /** Runs before a lane is opened; may throw what it rejects with. */
  readonly onOpen?: (lane: number) => void;
}

export interface FakePathScorer extends PathScorer {
  readonly calls: { readonly lane: number; readonly batch: PathBatch }[];
}

/** Every token is written before any is read, as kernels do. */
function scoreOn({ cache, states }: Pick<FakeDevice, 'cache' | 'states'>, batch: PathBatch): ScoredRows {
  const { tokens, position, slot, begin, key, row, target } = batch;
  const own = new Set(slot);
  if (own.size !== slot.length) throw new Error('a row of the cache is written twice');
  slot.forEach((at, t) => {
    const depth = position[t]!;
    const before = depth === 0 ? EMPTY : cache.get(key[begin[t]! + depth - 1]!);
    if (before === undefined) throw new Error(`token ${t} reads a row that is empty`);
    cache.set(at, extend(before, tokens[t]!, depth));
  });
  states?.call(batch).forEach((hash, t) => {
    if (hash !== cache.get(slot[t]!)) throw new Error(`the states behind token ${t} are of another path`);
  });
  const hashes = Array.from(row, (t) => cache.get(slot[t]!)!);
  return {
    logProb: Float32Array.from(hashes, (hash, r) => logProbOf(hash, target[r]!)),
    isArgmax: Int32Array.from(hashes, (hash, r) => isArgmaxOf(hash, target[r]!)),
  };
}

/** A device: its memory stays from one opening of its lane to the next, until its process ends. */
interface FakeDevice {
  cache: Map<number, number>;
  states: StateMemory<number> | undefined;
  epoch: number;
  last: Promise<unknown>;
}

export function fakePathScorer(options: FakePathOptions = {}): FakePathScorer {
  const { tokens = 64, keys = 4096, rows = 64, cacheRows = 256, lanes = 1, inFlight = 2, states } = options;
  const newStates = (): StateMemory<number> | undefined =>
    states === undefined ? undefined : new StateMemory(states, EMPTY, extend);
  const devices = Array.from({ length: lanes }, (): FakeDevice => ({
    cache: new Map(),
    states: newStates(),
    epoch: 0,
    last: Promise.resolve(),
  }));
  const scorer: FakePathScorer = {
    limits: { tokens, keys, rows, cacheRows, ...(states === undefined ? {} : { states }) },
    lanes,
    calls: [],
    open: (lane) => {
      try {
        options.onOpen?.(lane);
      } catch (error) {
        return Promise.reject(error as Error);
      }
      const device = devices[lane]!;
      const { epoch } = device;
      const score = (batch: PathBatch): Promise<ScoredRows> => {
        const index = scorer.calls.push({ lane, batch }) - 1;
        const scored = device.last.then(async () => {
          if (device.epoch !== epoch) throw processEnded();
          await options.before?.(lane, index);
          return scoreOn(device, batch);
        });
        device.last = scored.catch((error: Error) => {
          if (error.name !== 'ProcessEnded' || device.epoch !== epoch) return;
          device.epoch++;
          device.cache = new Map();
          device.states = newStates();
        });
        return scored;
      };
      return Promise.resolve({ inFlight, score });
    },
  };
  return scorer;
}

/** What a lane rejects with once its process is gone. */
export const processEnded = (): Error => Object.assign(new Error('killed'), { name: 'ProcessEnded' });
