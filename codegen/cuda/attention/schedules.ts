/** Which schedules attention has on a GPU: legality, the default, and all of them in a promising order. */
import {
  CLUSTER_SIZES,
  type ClusterSize,
  type CudaArch,
  type CudaAttentionSchedule,
  LONE_BLOCKS,
  RESIDENT_BLOCKS,
} from '../../../ir/cuda.js';
import { CACHE_FORMATS } from '../../../ir/function.js';
import { type AttentionTail, valueDimOf } from '../../../ir/attentionDims.js';
import type { AttentionKernel, KernelModule } from '../../../ir/kernel.js';
import { mostSeen, reachOfMask } from '../../../ir/mask.js';
import { hasOwnKeys } from '../../../ir/kernelAccess.js';
import { oncePer } from '../../../ir/oncePer.js';
import { type BufferDType, isFloat } from '../../../ir/types.js';
import { WGMMA_ROWS } from '../wgmma/instruction.js';
import { clustersAtOnce } from './clusters.js';
import { isLatent, LATENT_HEADS, latentParts, MAX_ROWS, MAX_RUN_ROWS, maxResident, MMA_ROWS, tileOf } from './tile.js';

/**
 * Keys per step of the online softmax. The step determines rounding, so each skeleton has a fixed one, and results do
 * not depend on the schedule.
 */
export const ATTENTION_KEYS: Readonly<Record<CudaAttentionSchedule['skeleton'], number>> = {
  simt: 32,
  mma: 32,
  wgmma: 32,
};

/** What a GPU grants a block: bytes of shared memory, and other blocks' memory where there are clusters. */
export interface AttentionLimits {
  readonly arch: CudaArch;
  readonly sharedBytesPerBlock: number;
}

/** Every GPU from sm_80 on grants a block 99 KiB of shared memory. */
const MIN_LIMITS: AttentionLimits = { arch: 'sm_80', sharedBytesPerBlock: 101_376 };

const MAX_SIMT_COLUMNS = 512;
/** Accumulators, queries or both must fit in 255 registers. */
const MAX_MMA_HEAD = 256;

const CLUSTERS: readonly ClusterSize[] = CLUSTER_SIZES.filter((size) => size > 1);
/** Whether a device runs larger ones depends on how its multiprocessors lie: nobody tries them unasked. */
const PORTABLE_CLUSTERS = CLUSTERS.filter((size) => size <= 8);

/** Query counts of a block, the most promising first. */
const QUERIES = { simt: [16, 8, 32, 4], mma: [64, 128, 32, 16] } as const;
/** Under a path mask, mma counts queries, not rows of the tile. */
const PATH_QUERIES = [1, 2, 4, 8, 16, 32, 64, 128] as const;
/** Teams of a block of one query over a path. */
const TEAMS = [2, 4] as const;
/** Of latent attention: one weighs keys, the other multiplies values. */
const LATENT_TEAMS = 2;
/** The answer and the total of the chunks before it lie in registers. */
const MAX_LONE_HEAD = 128;
/** Half of a tile's rows: those of sixteen heads spill. */
const MAX_LONE_GROUP = MMA_ROWS / 2;
/** Longer ones spill where a block has several queries. */
const MAX_RUN_HEAD = 128;
/** Keys and values at work, and at least one part under way. */
const MIN_LONE_PARTS = 3;
/** Rows of a tile over a path that are best for prompts. */
const PATH_ROWS = 64;

function queriesOf(skeleton: CudaAttentionSchedule['skeleton'], kernel: AttentionKernel): readonly number[] {
  const { mask, heads, kvHeads } = kernel;
  // Two warpgroups have 64 rows each, of whole queries.
  if (skeleton === 'wgmma') return [2 * Math.floor((WGMMA_ROWS * kvHeads) / heads)];
  if (skeleton === 'simt' || mask.kind !== 'path') return QUERIES[skeleton];
  if (isLatent(kernel)) return heads <= LATENT_HEADS ? [1, 2] : [1];
  const distance = (queries: number): number => Math.abs(Math.log2((queries * heads) / kvHeads / PATH_ROWS));
  return PATH_QUERIES.toSorted((a, b) => distance(a) - distance(b));
}

/** Blocks of one team for each multiprocessor above which clusters gain nothing. Blocks of two teams: half of them. */
const MAX_CLUSTER_BLOCKS = 2;
/**
 * Blocks of one team for each multiprocessor, of which two to four run at once, up to which they do as well as lone
 * warps: better over long paths, since more of a path is under way, and worse over short ones.
 */
const TEAM_BLOCKS = 4;
/** Blocks of several queries for each multiprocessor from which on lone warps keep memory busy. */
const MIN_STEM_BLOCKS = 4;
/** The same where queries are drafts of a text, whose keys are then read by fewer warps: 256 rows on an H200. */
const MIN_DRAFT_STEM_BLOCKS = 3.5;
/** Largest call that is taken for one in which many paths have few queries each, where nothing more is known. */
const MAX_SPARSE_ROWS = 64;

const inWords = (values: readonly number[]): string => {
  const sorted = [...values].sort((a, b) => a - b);
  return `${sorted.slice(0, -1).join(', ')} or ${sorted.at(-1)!}`;
};

const is16 = (dtype: BufferDType): dtype is 'bf16' | 'f16' => dtype === 'bf16' || dtype === 'f16';

/** Why a path's chunks cannot be shared by the schedule's teams and blocks, or its tiles by other paths. */
function sharingProblem(
  kernel: AttentionKernel,
  schedule: CudaAttentionSchedule,
  { arch }: AttentionLimits,
): string | undefined {
  const { skeleton, keys, teams, cluster, lone, resident, sharesTiles } = schedule;
  if (isLatent(kernel) && skeleton === 'mma') {
    if ([lone, resident, sharesTiles].some((each) => each !== undefined))
      return 'blocks of latent attention have no lone warps';
    if (teams !== undefined && (teams !== LATENT_TEAMS || schedule.queries > 1 || arch === 'sm_80'))
      return `one query of latent attention has ${LATENT_TEAMS} teams on sm_90a`;
    if (cluster === undefined) return undefined;
    if (!CLUSTERS.includes(cluster)) return `a cluster has ${inWords(CLUSTERS)} blocks`;
    if (schedule.queries > 1 || kernel.headDim % (MMA_ROWS * cluster) !== 0)
      return `clusters of latent attention have one query, and ${MMA_ROWS} columns a block`;
    return arch === 'sm_80' ? `${arch} has no clusters` : undefined;
  }
  const { isDecode, isLone, slots } = tileOf(kernel, schedule);
  if (sharesTiles === true && (skeleton !== 'mma' || kernel.mask.kind !== 'path' || isDecode || isLone))
    return 'shared tiles want mma over paths, and several queries a block';
  if (lone !== undefined) {
    const group = kernel.heads / kernel.kvHeads;
    if (!isLone) return `a lone warp wants mma over paths, and at most ${MMA_ROWS} heads of its queries`;
    if (kernel.headDim > MAX_LONE_HEAD || group > MAX_LONE_GROUP)
      return `a lone warp has registers for ${MAX_LONE_GROUP} heads of ${MAX_LONE_HEAD} at most`;
    if (schedule.queries > 1) {
      if (mostSeen(kernel.mask) !== undefined)
        return 'a lone warp with several queries takes paths without a window or chunks';
      if (2 * schedule.queries * group <= MMA_ROWS)
        return 'a lone warp has one query, or as many as its tile has rows for';
    }
    if (slots < MIN_LONE_PARTS) return `${lone} lone warps leave no room for keys and values under way`;
    return [teams, cluster, resident].every((each) => each === undefined)
      ? undefined
      : 'a lone warp has no teams and no cluster';
  }
  if (resident !== undefined) {
    if (!isDecode || schedule.queries > 1 || teams !== undefined || cluster !== undefined)
      return 'blocks of one team, each of one query, take equal parts of a multiprocessor';
    if (arch !== 'sm_90a') return `how much memory a multiprocessor has is known of sm_90a, the target is ${arch}`;
    const most = maxResident(kernel, keys);
    return resident < most ? undefined : `as many blocks as have room on a multiprocessor: ${most}`;
  }
  if (teams === undefined && cluster === undefined) return undefined;
  if (!isDecode) {
    if (skeleton === 'mma' && kernel.mask.kind === 'path' && schedule.queries > 1 && cluster !== undefined)
      return `queries of a cluster have ${MAX_RUN_ROWS} heads at most that share a head of keys`;
    return `teams and clusters want mma over paths, and one query of at most ${MMA_ROWS} heads a block`;
  }
  if (schedule.queries > 1) {
    if (cluster === undefined || cluster % schedule.queries !== 0)
      return 'each query of a cluster brings as many blocks';
    if (kernel.headDim > MAX_RUN_HEAD) return `queries of a cluster have heads of ${MAX_RUN_HEAD} at most`;
  }
  if (teams !== undefined && !TEAMS.some((count) => count === teams)) return `a block has ${inWords(TEAMS)} teams`;
  if (cluster === undefined) return undefined;
  if (!CLUSTERS.includes(cluster)) return `a cluster has ${inWords(CLUSTERS)} blocks`;
  return arch === 'sm_80' ? `${arch} has no clusters` : undefined;
}

/** Why a kernel cannot be computed by warpgroup products. */
function wgmmaProblem(
  { headDim: d, heads, kvHeads, mask, scale }: AttentionKernel,
  dtype: BufferDType,
  { arch }: AttentionLimits,
): string | undefined {
  if (arch !== 'sm_90a') return `wgmma needs sm_90a, the target is ${arch}`;
  if (mask.kind !== 'path') return 'wgmma takes paths';
  // That mma.sync and wgmma give the same bits is known of bf16.
  if (dtype !== 'bf16') return `wgmma wants queries, keys and values in bf16, not ${dtype}`;
  if (d !== 64 && d !== 128) return `wgmma wants heads of 64 or 128, not ${d}`;
  if (heads / kvHeads > WGMMA_ROWS) return `${heads / kvHeads} heads of a group are more than ${WGMMA_ROWS} rows`;
  return scale > 0 ? undefined : `wgmma folds a positive scale into the softmax, not ${scale}`;
}

/** Why latent attention is not computed by tensor cores (attention/latent.cuh). */
function latentProblem(kernel: AttentionKernel & { readonly tail: AttentionTail }): string | undefined {
  const { headDim, tail, mask, cap, sink, slopes, scales, scale } = kernel;
  if (mask.kind !== 'path' || mostSeen(mask) !== undefined) return 'mma takes them over paths without window or chunks';
  if (headDim % 64 !== 0 || headDim > MAX_SIMT_COLUMNS || tail.headDim % 64 !== 0)
    return `mma takes whole 64 columns of ${MAX_SIMT_COLUMNS} at most`;
  if ([cap, sink, slopes, scales].some((each) => each !== undefined))
    return 'mma takes no caps, sinks, slopes or codes';
  return scale > 0 ? undefined : 'mma folds a positive scale into the softmax';
}

/** `true`, or the reason why `schedule` cannot be used for `kernel`. */
export function isLegalAttention(
  kernel: AttentionKernel,
  module: Pick<KernelModule, 'buffers'>,
  schedule: CudaAttentionSchedule,
  limits: AttentionLimits = MIN_LIMITS,
): true | string {
  const { skeleton, queries, keys } = schedule;
  const { headDim: d, heads, kvHeads } = kernel;
  const dtypeOf = (name: string): BufferDType | undefined => module.buffers.find((b) => b.name === name)?.dtype;
  const dtype = dtypeOf(kernel.q);
  const isScaled = kernel.scales !== undefined;
  const stored = isScaled ? CACHE_FORMATS.find((format) => format === dtypeOf(kernel.k)) : dtype;
  if (dtype === undefined || [kernel.k, kernel.v].some((name) => dtypeOf(name) !== (stored ?? 'codes')))
    return isScaled ? 'keys and values must be codes' : 'queries, keys and values must be declared with one dtype';
  if (!isFloat(dtype)) return `queries are ${dtype}, not floats`;
  const out = module.buffers.find((b) => b.name === kernel.out)?.dtype;
  if (out === undefined || !isFloat(out)) return `the result ${kernel.out} is not declared as floats`;
  if (heads % kvHeads !== 0) return `${heads} heads cannot share ${kvHeads} heads of keys evenly`;
  if (keys !== ATTENTION_KEYS[skeleton])
    return `${skeleton} takes ${ATTENTION_KEYS[skeleton]} keys at a time: answers must not depend on the schedule`;
  const isPlain = kernel.tail === undefined && kernel.valueDim === undefined;
  const latent = skeleton === 'mma' && isLatent(kernel) ? latentProblem(kernel) : 'they are other ones';
  if (skeleton !== 'simt' && !isPlain && latent !== undefined)
    return `only simt takes keys with a tail, and values of another width than keys: ${latent}`;
  if (skeleton === 'mma' && isLatent(kernel)) {
    if (!is16(dtype)) return `tensor cores want queries, keys and values in 16 bits, not ${dtype}`;
  } else if (skeleton === 'mma') {
    if (!is16(dtype)) return `tensor cores want queries, keys and values in 16 bits, not ${dtype}`;
    if (kernel.mask.kind === 'bias') return 'only simt takes a materialized bias';
    if (isScaled && kernel.mask.kind !== 'path') return 'only simt takes keys and values in codes over trees';
    if (d % 16 !== 0 || d < 16 || d > MAX_MMA_HEAD)
      return `mma wants heads of a multiple of 16, at most ${MAX_MMA_HEAD}, not ${d}`;
    if (!(kernel.scale > 0)) return `mma folds a positive scale into the softmax, not ${kernel.scale}`;
  } else if (skeleton === 'wgmma') {
    if (isScaled) return 'wgmma wants keys and values in 16 bits, not codes';
    const problem = wgmmaProblem(kernel, dtype, limits);
    if (problem !== undefined) return problem;
  } else {
    const widths = [d, valueDimOf(kernel)];
    const wide = widths.find((width) => !Number.isSafeInteger(width) || width < 1 || width > MAX_SIMT_COLUMNS);
    if (wide !== undefined) return `simt wants heads of at most ${MAX_SIMT_COLUMNS}, not ${wide}`;
  }
  const counts = queriesOf(skeleton, kernel);
  if (!counts.includes(queries)) return `${skeleton} takes ${inWords(counts)} queries`;
  const { rows, dynamicBytes, staticBytes } = tileOf(kernel, schedule);
  const problem = sharingProblem(kernel, schedule, limits);
  if (problem !== undefined) return problem;
  if (skeleton === 'mma' && isLatent(kernel) && tileOf(kernel, schedule).slots < 2) return 'two tiles have no room';
  if (skeleton === 'mma' && rows > MAX_ROWS)
    return `${queries} queries of ${heads / kvHeads} heads are ${rows} rows, ${MAX_ROWS} at most`;
  const bytes = dynamicBytes + staticBytes;
  return bytes <= limits.sharedBytesPerBlock
    ? true
    : `a block needs ${bytes} bytes of shared memory, ${limits.sharedBytesPerBlock} are there`;
}

/** A call, as far as it is known. */
export interface AttentionCall {
  readonly rows: number;
  readonly multiprocessors: number;
  /** Most queries of a path next to each other, where they are few: 1, or those of drafts. */
  readonly run?: number | undefined;
}

/**
 * A legal schedule for a kernel that has not been tuned: on tensor cores if they can be used. Few queries, and those of
 * a call that only continues paths, are mostly queries of different paths. Each then has blocks of its own, as many as
 * keep every multiprocessor busy, with two teams where one block for each multiprocessor is enough. Lone warps take
 * them where all of these can run at once and teams would take turns. In large calls a lone warp takes several, which
 * may be siblings. Otherwise queries that are drafts behind a text share the reads of their blocks, which a query
 * without drafts has for itself. The lengths of paths do not matter: a block without a chunk costs next to nothing.
 */
export function defaultAttentionSchedule(
  kernel: AttentionKernel,
  module: Pick<KernelModule, 'buffers'>,
  limits: AttentionLimits = MIN_LIMITS,
  { rows, multiprocessors, run }: AttentionCall = { rows: Infinity, multiprocessors: 1 },
): CudaAttentionSchedule {
  const candidates = attentionSchedules(kernel, module, limits);
  if (isLatent(kernel)) {
    const latent = latentSchedule(kernel, module, limits, { rows, multiprocessors, run });
    if (latent !== undefined) return latent;
  }
  const blocks = (rows * kernel.kvHeads) / multiprocessors;
  const continuesPaths = run !== undefined;
  const hasDrafts = run === undefined ? rows > 1 && rows <= MAX_SPARSE_ROWS : run > 1;
  const single = candidates.filter(
    ({ skeleton, queries }) =>
      (continuesPaths || rows <= MAX_SPARSE_ROWS) && kernel.mask.kind === 'path' && skeleton === 'mma' && queries === 1,
  );
  const lone =
    blocks > TEAM_BLOCKS && limits.arch === 'sm_90a'
      ? single.find((schedule) => (schedule.lone ?? 0) >= blocks)
      : undefined;
  const shared = single
    .filter(
      ({ cluster = 1, teams = 1, lone: isLone, resident }) =>
        isLone === undefined &&
        resident === undefined &&
        (teams === 1 ? cluster === 1 || cluster * blocks <= MAX_CLUSTER_BLOCKS : teams === 2 && cluster * blocks <= 1),
    )
    .toSorted((a, b) => (b.teams ?? 1) - (a.teams ?? 1) || (b.cluster ?? 1) - (a.cluster ?? 1))[0];
  // Trees: many branches of a few tokens each, on stems that they share.
  const branches = candidates.find(({ sharesTiles }) => sharesTiles === true && hasOwnKeys(kernel, module));
  // Prompts over kept keys: paths are long, and neighbours mostly share one. Not measured: windows, and groups of heads
  // that leave rows idle, but for those of chunks.
  const { window, chunk } = reachOfMask(kernel.mask);
  const isFull = WGMMA_ROWS % (kernel.heads / kernel.kvHeads) === 0;
  const long =
    rows > MAX_SPARSE_ROWS &&
    kernel.mask.kind === 'path' &&
    !hasOwnKeys(kernel, module) &&
    (chunk !== undefined || (window === undefined && isFull))
      ? candidates.find(({ skeleton }) => skeleton === 'wgmma')
      : undefined;
  const stems = continuesPaths && limits.arch === 'sm_90a' ? stemsOf(candidates, blocks, hasDrafts) : undefined;
  const schedule = stems ?? (hasDrafts ? undefined : lone) ?? shared ?? branches ?? long ?? candidates[0];
  if (schedule !== undefined) {
    if (schedule !== shared) return schedule;
    const runs = hasDrafts ? runsOf(candidates, rows, blocks) : undefined;
    return runs ?? inEqualTurns(kernel, schedule, single, blocks);
  }
  const why = isLegalAttention(
    kernel,
    module,
    { kind: 'attention', skeleton: 'simt', queries: 4, keys: ATTENTION_KEYS.simt },
    limits,
  );
  throw new Error(`Kernel ${kernel.name} (${kernel.path}) has no legal attention schedule: ${String(why)}.`);
}

/** Few queries have a cluster each, the largest that certainly run at once. Prompts share keys. */
function latentSchedule(
  kernel: AttentionKernel,
  module: Pick<KernelModule, 'buffers'>,
  limits: AttentionLimits,
  { rows, multiprocessors, run }: AttentionCall,
): CudaAttentionSchedule | undefined {
  const all = attentionSchedules(kernel, module, limits).filter(({ skeleton }) => skeleton === 'mma');
  const most = Math.max(...all.map(({ queries }) => queries));
  if (rows > MAX_SPARSE_ROWS && run === undefined)
    return all.find(({ queries, cluster }) => queries === most && cluster === undefined);
  const wanted = rows * latentParts(kernel);
  const [alone] = all
    .filter(({ queries, cluster }) => queries === 1 && cluster === undefined)
    .toSorted((a, b) => (b.teams ?? 1) - (a.teams ?? 1));
  if (alone === undefined) return undefined;
  const shared = CLUSTERS.filter((cluster) => wanted <= clustersAtOnce(multiprocessors, cluster))
    .map((cluster): CudaAttentionSchedule => ({ ...alone, cluster }))
    .findLast((schedule) => isLegalAttention(kernel, module, schedule, limits) === true);
  return shared ?? alone;
}

/**
 * Lone warps that read what neighbours have in common once, where enough of them are there to keep memory busy.
 * Neighbours with nothing in common cost about what they cost in blocks of their own. `blocks`: of one query, for each
 * multiprocessor. All turns are equally long.
 */
function stemsOf(
  candidates: readonly CudaAttentionSchedule[],
  blocks: number,
  hasDrafts: boolean,
): CudaAttentionSchedule | undefined {
  const stems = candidates.filter(({ queries, lone }) => queries > 1 && lone !== undefined);
  const most = Math.max(...stems.map(({ lone = 0 }) => lone));
  const [{ queries } = { queries: Infinity }] = stems;
  const each = blocks / queries;
  if (each < (hasDrafts ? MIN_DRAFT_STEM_BLOCKS : MIN_STEM_BLOCKS)) return undefined;
  const wanted = Math.ceil(each / Math.ceil(each / most));
  return stems.find(({ lone = 0 }) => lone >= wanted);
}

/** Whether a schedule reads the keys of a text once for the drafts behind it, and a query alone like any other. */
export const sharesRuns = ({ queries, cluster }: CudaAttentionSchedule): boolean =>
  queries > 1 && cluster !== undefined;

/** Blocks of one query for each multiprocessor up to which few texts leave room for all that can share a path. */
const FEW_BLOCKS = 0.5;

/**
 * Clusters whose queries may be runs. Measured on an H200 with 1, 8 and 64 texts of 512 to 32,768 keys and 1 to 16
 * queries (docs/log/speculation-kernels.md): few queries want all blocks of a large cluster for each path; from a block
 * for each multiprocessor on, two queries share two blocks, and more of them only wait for each other.
 */
function runsOf(
  candidates: readonly CudaAttentionSchedule[],
  rows: number,
  blocks: number,
): CudaAttentionSchedule | undefined {
  const isFew = blocks <= FEW_BLOCKS;
  const queries = isFew && rows > 2 ? 4 : 2;
  const cluster = isFew ? 8 : 2;
  const teams = blocks <= FEW_BLOCKS / 2 || (!isFew && blocks <= 1) ? 2 : 1;
  return candidates.find(
    (schedule) =>
      sharesRuns(schedule) &&
      schedule.queries === queries &&
      schedule.cluster === cluster &&
      (schedule.teams ?? 1) === teams,
  );
}

/**
 * Blocks of one team run in turns where a multiprocessor has no room for all that fall to it. If the first turn took
 * as many as fit, the last one would leave memory idle: each takes as many as the others.
 */
function inEqualTurns(
  kernel: AttentionKernel,
  schedule: CudaAttentionSchedule,
  candidates: readonly CudaAttentionSchedule[],
  blocks: number,
): CudaAttentionSchedule {
  if (schedule.teams !== undefined || schedule.cluster !== undefined) return schedule;
  const turns = Math.ceil(blocks / maxResident(kernel, schedule.keys));
  return candidates.find(({ resident }) => resident === Math.ceil(blocks / turns)) ?? schedule;
}

/** Every legal schedule, the most promising first. */
export const attentionSchedules = (
  kernel: AttentionKernel,
  module: Pick<KernelModule, 'buffers'>,
  limits: AttentionLimits = MIN_LIMITS,
): readonly CudaAttentionSchedule[] => legalSchedules(kernel, module, limits);

/** Found once for a kernel, because they are the same for any number of rows. */
const legalSchedules = oncePer(
  (kernel: AttentionKernel, module: Pick<KernelModule, 'buffers'>, limits: AttentionLimits) =>
    (['mma', 'wgmma', 'simt'] as const)
      .flatMap((skeleton) =>
        queriesOf(skeleton, kernel).flatMap((queries) => {
          const schedule = { kind: 'attention', skeleton, queries, keys: ATTENTION_KEYS[skeleton] } as const;
          return [
            ...[{}, ...PORTABLE_CLUSTERS.map((cluster) => ({ cluster }))].flatMap((shared) => [
              { ...schedule, ...shared },
              ...TEAMS.map((teams) => ({ ...schedule, ...shared, teams })),
            ]),
            ...LONE_BLOCKS.map((lone) => ({ ...schedule, lone })),
            ...RESIDENT_BLOCKS.map((resident) => ({ ...schedule, resident })),
            { ...schedule, sharesTiles: true } as const,
          ];
        }),
      )
      .filter((schedule) => isLegalAttention(kernel, module, schedule, limits) === true),
);
