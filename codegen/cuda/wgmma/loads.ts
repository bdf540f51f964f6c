/** How a stage of the ring is filled: copies by TMA, slab by slab. */
import { SLAB_BYTES as ROW_BYTES, slabOf } from './instruction.js';
import type { WgmmaOptions } from './options.js';

type LoadTexts = Readonly<Record<'loadA' | 'loadB' | 'loadPrefetchA' | 'loadPrefetchB' | 'expected', string>> &
  Readonly<Record<'own' | 'remainderOwn' | 'bytesOfOwn', number>>;

/** What the copies of a stage depend on. */
export type LoadOptions = Pick<
  WgmmaOptions,
  | 'tm'
  | 'tn'
  | 'tk'
  | 'cluster'
  | 'isCluster'
  | 'remainderTn'
  | 'slabs'
  | 'aBytes'
  | 'stageBytes'
  | 'boxes'
  | 'boxRows'
  | 'mmaType'
> & {
  /** Blocks of a cluster that have the same rows, of which each loads a part for all; absent: one. */
  readonly sharers?: number;
};

/**
 * Statements that fill a stage, and the bytes that it then waits for. In a cluster each block loads half of the weight
 * tile for both. `own` is the number of rows of a weight that a block loads: the C variable of that name if there are
 * narrower remainder tiles.
 */
export function loadTexts(options: LoadOptions): LoadTexts {
  const { tm, tn, tk, cluster, isCluster, remainderTn, slabs, aBytes, stageBytes, boxes, boxRows, mmaType } = options;
  const { sharers = 1 } = options;
  const slabColumns = slabOf(mmaType);
  const own = tn / cluster;
  const ownBytes = remainderTn === 0 ? String(own * ROW_BYTES) : `own * ${ROW_BYTES}`;
  const ownRows = remainderTn === 0 ? String(own) : 'own';
  const rankBytes = isCluster ? ` + rank * ${ownBytes}` : '';
  const rankRow = isCluster ? ` + (int)rank * ${ownRows}` : '';
  const plus = (count: number): string => (count === 0 ? '' : ` + ${count}`);
  const perSlab = (print: (slab: number) => string): string =>
    Array.from({ length: slabs }, (_, slab) => print(slab)).join(' ');
  const a = (stage: string, block: string): string =>
    perSlab((slab) => {
      const to = `shared + ${stage} * ${stageBytes}${plus(slab * tm * ROW_BYTES)}`;
      const column = `${block} * ${tk}${plus(slab * slabColumns)}`;
      if (sharers === 1) return `tw_load_box(${to}, &m0, ${column}, row0, full + 8 * ${stage});`;
      const part = tm / sharers;
      return (
        `tw_load_box_all(${to} + rank * ${part * ROW_BYTES}, &m0, ${column}, row0 + (int)rank * ${part}, ` +
        `full + 8 * ${stage}, ${(1 << sharers) - 1});`
      );
    });
  const b = (stage: string, block: string): string =>
    perSlab((slab) =>
      Array.from({ length: boxes }, (_, box) => {
        const offset = aBytes + (slab * tn + box * boxRows) * ROW_BYTES;
        const to = `shared + ${stage} * ${stageBytes}${plus(offset)}${rankBytes}`;
        const from = `weight, ${block} * ${tk}${plus(slab * slabColumns)}, column0${plus(box * boxRows)}${rankRow}`;
        return isCluster
          ? `tw_load_box_all(${to}, ${from}, full + 8 * ${stage}, 3);`
          : `tw_load_box(${to}, ${from}, full + 8 * ${stage});`;
      }).join(' '),
    );
  return {
    loadA: a('stage', 'block'),
    loadB: b('stage', 'block'),
    loadPrefetchA: a('i', 'i'),
    loadPrefetchB: b('i', 'i'),
    expected: remainderTn === 0 ? String(stageBytes) : 'bytes',
    own,
    remainderOwn: remainderTn / cluster,
    bytesOfOwn: cluster * slabs * ROW_BYTES,
  };
}
