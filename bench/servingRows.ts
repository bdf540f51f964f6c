/** The configurations that the ablation of serving compares. */
import type { KvCache } from '../driver/targets/precision.js';

export interface ServingRow {
  readonly name: string;
  /** For the help of the benchmark, and its documentation. */
  readonly meaning: string;
  /** Whether keys and values have a head for each head of queries: the same function, without grouping. */
  readonly isRepeated: boolean;
  readonly kvCache: KvCache;
  /** Whether every query reads as many keys as the longest context may have. */
  readonly isPadded: boolean;
}

const BASELINE = { isRepeated: true, kvCache: '16bit', isPadded: true } as const;

export const SERVING_ROWS: readonly ServingRow[] = [
  {
    ...BASELINE,
    name: 'baseline',
    meaning: 'heads of keys and values repeated for each head of queries, contexts padded, a cache of 16 bits',
  },
  {
    ...BASELINE,
    kvCache: 'fp8',
    name: '+ FP8 cache, slot filter',
    meaning: 'the baseline with --kv-cache fp8; slots of −1 are not written, in any row',
  },
  { ...BASELINE, isRepeated: false, name: '+ grouped queries', meaning: 'the baseline with the heads as they are' },
  {
    ...BASELINE,
    isPadded: false,
    name: '+ valid blocks, two-step softmax',
    meaning: 'the baseline without padding: queries list the keys that they see, and read them a chunk after another',
  },
  { isRepeated: false, kvCache: 'fp8', isPadded: false, name: 'all', meaning: 'the three of them together' },
];

/** A line for each row with what it is. */
export const describeServingRows = (): string =>
  SERVING_ROWS.map(({ name, meaning }) => `  ${name}\n      ${meaning}`).join('\n');
