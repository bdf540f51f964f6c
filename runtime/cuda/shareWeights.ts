/**
 * Weights of replicas that start together: each reads its part of the files over its own bus, lays it out, and copies
 * the other parts from its siblings' devices. Whatever keeps a sibling's part from arriving — no way between the
 * devices, a sibling that failed, died or is late — the part is read from files instead, as if there were no sibling.
 */
import { isCodeFormat } from '../../ir/storage.js';
import { readSettings } from '../../settings.js';
import { fileRanges, type TensorSource } from '../tensorSource.js';
import type { PlacedWeight, WeightPlan } from '../weightPlan.js';
import { planLoading } from './loadPlan.js';
import type { CudaSharedHandle } from './native.js';
import { loadDeviceWeights, type WeightLoad, type LoadTimes, type ShareTimes } from './weights.js';

/** What a replica's device says when its part is in place: how to reach its memory, or why nobody can. */
export type WeightOffer = { readonly shared: CudaSharedHandle } | { readonly refused: string };

/** The way to the siblings, for one stage of a pipeline. */
export interface WeightExchange {
  /** Which replica this is, of how many that started together. */
  readonly index: number;
  readonly count: number;
  /** Tells the siblings; once. */
  offer(offer: WeightOffer): void;
  /** A sibling's offer, or why there will be none. Never rejects; settles for a sibling that is gone. */
  offerOf(sibling: number): Promise<WeightOffer>;
  /** Tells the siblings that this replica will not touch their memory again; once, also where it failed. */
  finish(): void;
  /**
   * Settles when every sibling has finished or is gone, at once where no memory was offered: only then may what was
   * offered be released.
   */
  siblingsFinished(): Promise<void>;
}

/** A memory of its own for the driver: smaller ones are parts of an allocation that others lie in too. */
export const SHARED_GRANULARITY = 2 << 20;

/**
 * A sibling may need so many times as long as this replica for its part, and so many seconds, before it counts as lost.
 */
const PATIENCE = { factor: 2, seconds: 10 };

const seconds = (from: number): number => (performance.now() - from) / 1000;

const text = (error: unknown): string => (error instanceof Error ? error.message : String(error));

const sumOf = (a: LoadTimes, b: LoadTimes): LoadTimes => ({
  preparing: a.preparing + b.preparing,
  releasing: a.releasing + b.releasing,
  copiedBytes: a.copiedBytes + b.copiedBytes,
  streaming: {
    total: a.streaming.total + b.streaming.total,
    reading: a.streaming.reading + b.streaming.reading,
    bus: a.streaming.bus + b.streaming.bus,
    launches: a.streaming.launches + b.streaming.launches,
    device: a.streaming.device + b.streaming.device,
  },
});

/** What only the first call of does anything. */
function once<T extends readonly unknown[]>(work: (...args: T) => void): (...args: T) => void {
  let isDone = false;
  return (...args) => {
    if (!isDone) work(...args);
    isDone = true;
  };
}

const loadPart = (request: WeightLoad, { plan }: WeightPart): Promise<LoadTimes> =>
  loadDeviceWeights({ ...request, weightPlan: plan, loadPlan: planLoading(plan) });

async function orLate<T>(wanted: Promise<T>, patience: number, late: T): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  try {
    return await Promise.race([
      wanted,
      new Promise<T>((resolve) => {
        timer = setTimeout(() => resolve(late), patience * 1000);
      }),
    ]);
  } finally {
    clearTimeout(timer);
  }
}

/** A sibling's part, copied; the reason where it could not be. */
async function copyPart(
  { weights }: WeightLoad,
  offer: WeightOffer,
  { offset, bytes }: WeightPart,
): Promise<string | undefined> {
  if ('refused' in offer) return offer.refused;
  if (bytes === 0) return undefined;
  try {
    await weights.copyFromProcess(offset, offer.shared, offset, bytes);
    return undefined;
  } catch (error) {
    return text(error);
  }
}

/**
 * Loads all weights of the request's plan: a part from files, the others from siblings where that works. Every replica
 * must have the same plan and parts. Throws as loadDeviceWeights does; the siblings are told then, too.
 */
export async function loadSharedWeights(
  request: WeightLoad,
  exchange: WeightExchange,
  { factor, seconds: least } = PATIENCE,
): Promise<LoadTimes> {
  const { index, count } = exchange;
  const parts = partWeights(request.weightPlan, count);
  const offer = once((value: WeightOffer) => exchange.offer(value));
  const finish = once(() => exchange.finish());
  const lost: ShareTimes['lost'][number][] = [];
  try {
    const begin = performance.now();
    let times = await loadPart(request, parts[index]!);
    offer(share(request));
    const patience = least + factor * seconds(begin);
    const offered = performance.now();
    let waited = offered;
    await Promise.all(
      parts.map(async (part, sibling) => {
        if (sibling === index) return;
        const answer = await orLate(exchange.offerOf(sibling), patience, {
          refused: `it was not ready ${patience.toFixed(0)} s after this one`,
        });
        waited = performance.now();
        const reason = await copyPart(request, answer, part);
        if (reason !== undefined) lost.push({ sibling, reason });
      }),
    );
    finish();
    const copying = seconds(waited);
    for (const { sibling } of lost) times = sumOf(times, await loadPart(request, parts[sibling]!));
    const copiedBytes = parts.reduce(
      (sum, { bytes }, i) => sum + (i === index || lost.some(({ sibling }) => sibling === i) ? 0 : bytes),
      0,
    );
    return { ...times, sharing: { waiting: (waited - offered) / 1000, copying, copiedBytes, lost } };
  } finally {
    offer({ refused: 'it failed' });
    finish();
  }
}

/** How long a memory that siblings may be reading is kept for them, seconds. One that still reads then will not end. */
const MAX_KEPT = 5;

/** Whether memory that was offered may be released: false where a sibling hangs with it. */
export const isUnshared = async (exchange: WeightExchange | undefined): Promise<boolean> =>
  exchange === undefined ||
  orLate(
    exchange.siblingsFinished().then(() => true),
    MAX_KEPT,
    false,
  );

function share({ weights }: WeightLoad): WeightOffer {
  if (!readSettings().usesPeers) return { refused: 'TILEWRIGHT_PEERS is none' };
  try {
    return { shared: weights.share() };
  } catch (error) {
    return { refused: text(error) };
  }
}

// Divides the weights of a plan among replicas, so that each file is read only once. Pure.

/** Whole weights that lie one after another. */
export interface WeightPart {
  /** The part's weights, at their places in the memory of all. */
  readonly plan: WeightPlan;
  /** Offset in that memory. */
  readonly offset: number;
  readonly bytes: number;
}

const tensorsOf = (weight: PlacedWeight): readonly TensorSource[] => (weight.kind === 'packed' ? weight.sources : []);

/** Bytes of files that weights are made of. What several are made of counts once. */
function fileBytesOf(weights: readonly PlacedWeight[]): number {
  const factors = weights.flatMap((weight) =>
    weight.kind === 'packed' && weight.columnScale !== undefined ? [weight.columnScale] : [],
  );
  return [...new Set([...weights.flatMap(tensorsOf), ...factors])]
    .flatMap(fileRanges)
    .reduce((sum, { own }) => sum + own, 0);
}

/** Whether any of it is read from files. Made-up weights are generated on every device. */
export const readsFiles = (plan: WeightPlan): boolean => fileBytesOf(plan.weights) > 0;

/** Codes and scales of a kernel are no further from each other. */
const NEAR = 8;

/** Runs of weights: codes are in one with the scales of their rows, which are found in the same reading. */
function runsOf(weights: readonly PlacedWeight[]): readonly (readonly PlacedWeight[])[] {
  const scales = new Map<TensorSource, number>();
  // The first weight that the weight at each place must be in a run with.
  const firsts = weights.map((weight, i) => {
    const { scalesOf } = weight.weight;
    const tensors = tensorsOf(weight);
    if (scalesOf !== undefined) for (const tensor of tensors) scales.set(tensor, i);
    const before = tensors.flatMap((tensor) => scales.get(tensor) ?? []).filter((at) => i - at <= NEAR);
    return isCodeFormat(weight.weight.format) ? Math.min(i, ...before) : i;
  });
  const runs: PlacedWeight[][] = [];
  for (let i = weights.length - 1, end = weights.length, begin = end; i >= 0; i--) {
    begin = Math.min(begin, firsts[i]!);
    if (i > begin) continue;
    runs.push(weights.slice(i, end));
    end = i;
  }
  return runs.reverse();
}

/**
 * `count` parts, of about equally many bytes of files, in the order of their places; some are empty where there are few
 * weights. Codes and the scales of their rows are in one part. Slots, which lie behind all others, belong to no range:
 * every replica makes its own, with whatever part it loads.
 */
export function partWeights(plan: WeightPlan, count: number): readonly WeightPart[] {
  const slots = plan.weights.filter(({ kind }) => kind === 'slots');
  const runs = runsOf(plan.weights.filter(({ kind }) => kind !== 'slots'));
  const sizes = runs.map(fileBytesOf);
  const total = sizes.reduce((sum, bytes) => sum + bytes, 0);
  const groups = Array.from({ length: count }, (): PlacedWeight[] => []);
  let before = 0;
  runs.forEach((run, i) => {
    // The part in which the middle of the run lies.
    const middle = total === 0 ? 0 : (before + sizes[i]! / 2) / total;
    groups[Math.min(count - 1, Math.floor(middle * count))]!.push(...run);
    before += sizes[i]!;
  });
  const startOf = (group: readonly PlacedWeight[]): number | undefined => {
    const [first] = group;
    return first === undefined || first.kind === 'mapped' ? undefined : first.offset;
  };
  const shared = startOf(slots) ?? plan.packedBytes;
  let end = shared;
  const offsets: number[] = [];
  for (let i = count - 1; i >= 0; i--) offsets[i] = end = startOf(groups[i]!) ?? end;
  return groups.map((weights, i) => ({
    plan: { ...plan, weights: [...weights, ...slots] },
    offset: offsets[i]!,
    bytes: (offsets[i + 1] ?? shared) - offsets[i]!,
  }));
}
