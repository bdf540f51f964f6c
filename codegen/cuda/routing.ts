/**
 * Which kernels of a bucket choose experts. Products of few rows that know the kernels behind them (ir/kernel.ts,
 * Routing) run them, and these are not launched.
 */
import { type CudaGemmSchedule, type CudaSchedule, ROUTING_USES, type RoutingUse } from '../../ir/cuda.js';
import { extentIn } from '../../ir/extents.js';
import type { ContractionKernel, GemmKernel, KernelModule, RouteKernel } from '../../ir/kernel.js';
import type { Bucket, Launch } from '../../ir/plan.js';
import { at } from '../../system/at.js';
import { hasRowWarps, ROUTED_ROWS, SKINNY_ROWS } from './skinny/layout.js';
import { hasAdapters } from './text/adapters.js';

/** Most pairs whose rows it makes: one block makes them all. */
const MOST_PAIRS = 8;
/** Bytes of counts of experts at most, each of which has four (experts/pairs.cuh). */
const MOST_COUNTS = 32 << 10;

/** Static shared memory of what arranges pairs, in a block of the most warps. */
export const routingBytes = ({ count }: Pick<RouteKernel, 'count'>): number =>
  Math.min(MOST_COUNTS, 32 * count * 4) + 4 * (count + 32);

/** Why `schedule` cannot run what is behind the kernel; undefined if it does not, or can. */
export function routingProblem(kernel: ContractionKernel, schedule: CudaGemmSchedule): string | undefined {
  const { routes, skeleton, cluster } = schedule;
  if (routes === undefined) return undefined;
  if (kernel.anchor !== 'gemm' || kernel.routing === undefined) return 'no kernel that chooses experts follows it';
  if (skeleton !== 'skinnyWgmma') return `${skeleton} cannot choose experts`;
  if (cluster !== 1) return 'blocks of a cluster choose no experts';
  if (hasAdapters(kernel)) return 'products whose rows have adapters choose no experts';
  if (routes !== 'rows') return undefined;
  if (kernel.routing.gather === undefined) return 'no kernel makes rows of pairs';
  return hasRowWarps(schedule) ? undefined : 'a block of so many columns has too few warps for rows of pairs';
}

/** A product that may choose experts: its place among the kernels, and the signatures of it and of what follows. */
interface Routed {
  readonly at: number;
  readonly product: string;
  readonly route: string;
  readonly gather: string | undefined;
}

type Schedules = Readonly<Record<string, CudaSchedule>>;

/**
 * The schedules of a bucket, by signature, with what they say of routing: `routes` of products, `isIdle` of the kernels
 * behind them. They say nothing of it before (unrouted). `launches`: of the module's kernels, in their order.
 * `fits`: whether a block has room for a schedule and so many bytes beside it.
 */
export function settleRouting(
  module: KernelModule,
  launches: readonly Launch[],
  schedules: Schedules,
  { extents }: Bucket,
  fits: (kernel: GemmKernel, module: KernelModule, schedule: CudaGemmSchedule, beside: number) => boolean,
): Schedules {
  const settled: Record<string, CudaSchedule> = { ...schedules };
  /** By product: schedules with which it runs what follows, best first. */
  const ways = new Map<string, readonly CudaGemmSchedule[]>();
  const all = module.kernels.flatMap((kernel, i): Routed[] => {
    if (kernel.anchor !== 'gemm' || kernel.routing === undefined) return [];
    const { route, gather } = kernel.routing;
    const { signature: product } = at(launches, i);
    const plain = productSchedule(schedules[product]);
    const rows = extentIn(kernel.rows, extents);
    const uses = ROUTING_USES.filter((use) => use === 'pairs' || (gather && rows * route.chosen <= MOST_PAIRS));
    const isAlone = kernel.segments.length === 1;
    const found = (rows <= (isAlone ? SKINNY_ROWS : ROUTED_ROWS) ? uses.toReversed() : []).flatMap((routes) => {
      for (let { stages } = plain; stages > 1; stages--) {
        const own: CudaGemmSchedule = { ...plain, stages, routes };
        if (routingProblem(kernel, own) === undefined && fits(kernel, module, own, routingBytes(route))) return [own];
      }
      return [];
    });
    if (!ways.has(product)) ways.set(product, found);
    const behind = gather === undefined ? undefined : at(launches, i + 2).signature;
    return [{ at: i, product, route: at(launches, i + 1).signature, gather: behind }];
  });
  const wayOf = ({ product }: Routed): CudaGemmSchedule | undefined => ways.get(product)?.[0];
  const routeAt = new Map(all.map((each) => [each.at + 1, each]));
  const gatherAt = new Map(all.flatMap((each) => (each.gather === undefined ? [] : [[each.at + 2, each]])));
  /** Whether all launches of a code are those of products that run it: it is launched for all of them or for none. */
  const isLeft = (signature: string, owners: ReadonlyMap<number, Routed>, use?: RoutingUse): boolean =>
    launches.every((launch, i) => {
      const owner = owners.get(i);
      const way = owner && wayOf(owner);
      return launch.signature !== signature || (way !== undefined && (use === undefined || way.routes === use));
    });
  const stays = (own: Routed): boolean =>
    isLeft(own.route, routeAt) && (wayOf(own)?.routes !== 'rows' || isLeft(own.gather!, gatherAt, 'rows'));
  for (let isStable = false; !isStable;) {
    const worse = all.find((own) => wayOf(own) !== undefined && !stays(own));
    isStable = worse === undefined;
    if (worse !== undefined) ways.set(worse.product, ways.get(worse.product)!.slice(1));
  }
  for (const own of all) {
    const way = wayOf(own);
    if (way !== undefined) settled[own.product] = way;
    settled[own.route] = use(schedules[own.route], way !== undefined);
    if (own.gather !== undefined) settled[own.gather] = use(schedules[own.gather], way?.routes === 'rows');
  }
  return settled;
}

/** Schedules by signature, of which no product says anything of routing. */
export const unrouted = (schedules: Schedules): Schedules =>
  Object.fromEntries(
    Object.entries(schedules).map(([signature, schedule]) => {
      if (schedule.kind !== 'gemm' || schedule.routes === undefined) return [signature, schedule];
      const { routes: _, ...others } = schedule;
      return [signature, others];
    }),
  );

function productSchedule(schedule: CudaSchedule | undefined): CudaGemmSchedule {
  if (schedule?.kind !== 'gemm') throw new Error('A product with logits of experts has no gemm schedule.');
  return schedule;
}

function use(schedule: CudaSchedule | undefined, isIdle: boolean): CudaSchedule {
  if (schedule?.kind !== 'loop') throw new Error('A kernel behind logits of experts has no loop schedule.');
  const { isIdle: _, ...others } = schedule;
  return isIdle ? { ...others, isIdle } : others;
}
