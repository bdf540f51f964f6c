/** How a stage of the ring is filled: copies by TMA, slab by slab. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { SLAB } from './instruction.js';
import type { WgmmaLayout } from './layout.js';

const ROW_BYTES = SLAB * 2;

type Loads = Readonly<Record<'loadA' | 'loadB' | 'loadPrefetchA' | 'loadPrefetchB' | 'expected', string>> &
  Readonly<Record<'own' | 'lastOwn' | 'bytesOfOwn', number>>;

/**
 * Statements that fill a stage, and the bytes that it then awaits. In a cluster each block brings half of the weight
 * tile, for both. `own` counts the rows of a weight that a block brings: the C variable of that name where tiles of a
 * last wave are narrower.
 */
export function loadText(
  { tm, tn, tk, cluster, lastTn }: CudaGemmSchedule,
  { slabs, aBytes, stageBytes, boxes, boxRows }: WgmmaLayout,
): Loads {
  const own = tn / cluster;
  const plus = (count: number): string => (count === 0 ? '' : ` + ${count}`);
  const byRank = (unit: number): string =>
    cluster === 1 ? '' : lastTn === undefined ? `rank * ${own * unit}` : `rank * own${unit === 1 ? '' : ` * ${unit}`}`;
  const then = (text: string): string => (text === '' ? '' : ` + ${text}`);
  const ownBytes = then(byRank(ROW_BYTES)),
    ownRow = then(byRank(1).replace('rank', '(int)rank'));
  const perSlab = (print: (i: number) => string): string => Array.from({ length: slabs }, (_, i) => print(i)).join(' ');
  const a = (stage: string, block: string): string =>
    perSlab(
      (i) =>
        `tw_load_box(shared + ${stage} * ${stageBytes}${plus(i * tm * ROW_BYTES)}, &m0, ${block} * ${tk}${plus(i * SLAB)}, row0, full + 8 * ${stage});`,
    );
  const b = (stage: string, block: string): string =>
    perSlab((i) =>
      Array.from(
        { length: boxes },
        (_, j) =>
          `tw_load_box${cluster === 2 ? '_both' : ''}(shared + ${stage} * ${stageBytes}${plus(aBytes + (i * tn + j * boxRows) * ROW_BYTES)}${ownBytes}, weight, ${block} * ${tk}${plus(i * SLAB)}, column0${plus(j * boxRows)}${ownRow}, full + 8 * ${stage});`,
      ).join(' '),
    );
  return {
    loadA: a('stage', 'block'),
    loadB: b('stage', 'block'),
    loadPrefetchA: a('i', 'i'),
    loadPrefetchB: b('i', 'i'),
    expected: lastTn === undefined ? String(stageBytes) : 'bytes',
    own,
    lastOwn: (lastTn ?? 0) / cluster,
    bytesOfOwn: cluster * tk * 2,
  };
}
