/** Jobs of weights in groups (ir/groups.ts): codes and scales, each laid out by launches of its own. */
import { BLOCK_COLUMNS, groupedBytes } from '../../ir/groups.js';
import type { WeightDecl } from '../../ir/kernel.js';
import { PACK_GROUPS } from './packGroupsKernel.js';
import { jobOf, launchOf, type DeviceJob, type PackRange } from './packJob.js';

/** What a job lays out. */
export type GroupPart = 'codes' | 'scales';

/** Elements of a row that a job reads: codes, or words of scales and zero points, of four bytes each. */
export const groupColumns = ({ k, group = BLOCK_COLUMNS }: WeightDecl, part: GroupPart): number =>
  part === 'codes' ? k : k / group;

/**
 * Job of tw_pack_groups: that of tw_pack_rows, but its stride is the group, its end the rows of a weight of
 * `weightBytes`. Throws for other than whole rows.
 */
export function groupJob(weight: WeightDecl, range: PackRange, part: GroupPart, weightBytes: number): DeviceJob {
  const { group } = weight;
  if (group === undefined || range.view !== undefined || !['encoded', 'random'].includes(range.tensor.kind))
    throw new Error(`Weight ${weight.name} is in no groups: its source is ${range.tensor.kind}.`);
  const { bytes, ints } = jobOf(weight, range);
  ints[7] = group;
  ints[15] = part === 'scales' ? 1 : 0;
  ints[21] = weightBytes / groupedBytes(1, weight.k, group);
  const columns = part === 'scales' ? weight.k / group : weight.k / 8;
  return { bytes, launch: launchOf(columns, range.rows), symbol: PACK_GROUPS };
}
