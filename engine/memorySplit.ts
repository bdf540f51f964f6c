/**
 * How models share the memory of a device: a pure function of what each holds, waits for and loses. What it equalizes
 * is seconds of the device that a byte more would save: a model whose requests wait for pages runs small batches, and
 * pays the fixed time of a step for few tokens; a model whose pages are taken too early computes them again. Models
 * that feed each other are served by the same rule, since a second saved in either is a second for both.
 */

/**
 * A model's part of the memory. Counts are in pieces, the unit in which memory comes and goes, and may be fractions.
 */
export interface ModelMemory {
  readonly pieceBytes: number;
  /** Pieces that it has, at least needs, and has addresses for. */
  readonly pieces: number;
  readonly least: number;
  readonly most: number;
  /** Held by sequences; kept for nobody in particular; needed by waiting sequences, if they all began. */
  readonly held: number;
  readonly idle: number;
  readonly wanted: number;
  /** Whether sequences wait for nothing but pages. */
  readonly isShort: boolean;
  /** Of a second: device time of its steps that does not depend on how much they compute. */
  readonly fixed: number;
  /** Of a second: device time that finding idle pages has saved. */
  readonly saved: number;
  /**
   * Share of device time spent on computing evicted pages again, and how many more pieces would have kept them.
   */
  readonly lost: number;
  readonly lostPieces: number;
  /** How many times as much its memory counts: more than once where it came back soon after it was taken. */
  readonly caution: number;
  /** Device seconds to compute what a piece holds. */
  readonly refill: number;
}

export interface SplitPolicy {
  /** A piece moves where it saves so many times what it costs. */
  readonly margin: number;
  /** Seconds within which a move must pay for itself. */
  readonly horizon: number;
  /** Seconds that moving a byte takes. */
  readonly byteSeconds: number;
  /** Share of the memory that may move at a time, blank pieces apart. */
  readonly stride: number;
}

export const SPLIT_POLICY: SplitPolicy = { margin: 1.25, horizon: 15, byteSeconds: 1e-11, stride: 0.125 };

/** A model that holds nothing is worth this many pieces' worth of held ones: its first piece is worth most. */
const LITTLE = 0.5;

/** Seconds a second that a byte more saves, where the model has `pieces`. */
export function gainOf(model: ModelMemory, pieces: number): number {
  const { held, wanted, isShort, fixed, lost, lostPieces, pieceBytes } = model;
  // Steps take as many tokens as there is memory for, so that the fixed time falls with it.
  const waiting =
    isShort && pieces < 1.5 * model.pieces + wanted
      ? (fixed * Math.max(held, LITTLE)) / Math.max(pieces, LITTLE) ** 2
      : 0;
  const missed = pieces - model.pieces < lostPieces ? lost / Math.max(1, lostPieces) : 0;
  return (waiting + missed) / pieceBytes;
}

/** Seconds a second that a byte less costs, and seconds that it costs once, where the model has `pieces`. */
export function lossOf(model: ModelMemory, pieces: number): { readonly rate: number; readonly once: number } {
  const { held, idle, wanted, fixed, saved, refill, pieceBytes } = model;
  // Blank pieces that waiting sequences are about to take count as taken.
  const used = held + Math.max(0, Math.min(wanted, model.pieces - held - idle));
  const left = pieces - 1;
  if (left >= used + idle) return { rate: 0, once: 0 };
  if (left >= used) return { rate: saved / Math.max(1, idle) / pieceBytes, once: 0 };
  const waiting = (fixed * Math.max(used, LITTLE)) / Math.max(left, LITTLE) ** 2;
  return { rate: waiting / pieceBytes, once: left < held ? refill / pieceBytes : 0 };
}

/** Pieces that each model shall have. Never more than `bytes` in all, and none below its least where that fits. */
export function splitMemory(
  models: readonly ModelMemory[],
  bytes: number,
  policy: SplitPolicy = SPLIT_POLICY,
): readonly number[] {
  const targets = models.map(({ pieces, least, most }) => Math.min(most, Math.max(least, pieces)));
  let free = bytes - models.reduce((sum, { pieceBytes }, i) => sum + targets[i]! * pieceBytes, 0);
  const give = (i: number, count: number): void => {
    targets[i]! += count;
    free -= count * models[i]!.pieceBytes;
  };
  /** The model whose next byte costs least, apart from those that gain. */
  const cheapest = (gained: ReadonlySet<number>): number =>
    best(models, (model, i) =>
      gained.has(i) || targets[i]! <= model.least ? -Infinity : -costOf(model, targets[i]!, policy),
    );
  while (free < 0) {
    const from = cheapest(new Set());
    if (from < 0) break;
    give(from, -1);
  }
  let moved = 0;
  /** A model either gains or loses. */
  const [gave, gained] = [new Set<number>(), new Set<number>()];
  for (;;) {
    const to = best(models, (model, i) =>
      targets[i]! >= model.most || gave.has(i) ? -Infinity : gainOf(model, targets[i]!),
    );
    const gain = to < 0 ? 0 : gainOf(models[to]!, targets[to]!);
    if (!(gain > 0)) return withReserves(models, targets, free);
    if (free >= models[to]!.pieceBytes) {
      give(to, 1);
      continue;
    }
    const from = cheapest(gained.add(to));
    if (from < 0) return targets;
    const cost = costOf(models[from]!, targets[from]!, policy);
    const isFree = cost === 0;
    if (!isFree && moved >= policy.stride * bytes) return targets;
    if (gain <= policy.margin * cost + (2 * policy.byteSeconds) / policy.horizon) return targets;
    give(from, -1);
    gave.add(from);
    if (!isFree) moved += models[from]!.pieceBytes;
  }
}

/** What taking a piece costs, a second and byte, its single costs spread over the time in which it must pay. */
function costOf(model: ModelMemory, pieces: number, { horizon }: SplitPolicy): number {
  const { rate, once } = lossOf(model, pieces);
  return model.caution * (rate + once / horizon);
}

/** Half of the free memory goes to models that have nearly used up theirs, the one with the fewest bytes first. */
function withReserves(models: readonly ModelMemory[], targets: readonly number[], free: number): readonly number[] {
  const given = [...targets];
  let left = free;
  while (left > free / 2) {
    const to = best(models, ({ held, idle, wanted, pieces, most, pieceBytes }, i) => {
      const isFull = held + idle + wanted > 0.75 * pieces;
      return isFull && given[i]! < most && pieceBytes <= left ? -given[i]! * pieceBytes : -Infinity;
    });
    if (to < 0) return given;
    given[to]!++;
    left -= models[to]!.pieceBytes;
  }
  return given;
}

/** Index of the model with the greatest value, the first of equals; −1 where none is greater than −∞. */
function best(models: readonly ModelMemory[], value: (model: ModelMemory, i: number) => number): number {
  let found = -1;
  let most = -Infinity;
  models.forEach((model, i) => {
    const own = value(model, i);
    if (own > most) [found, most] = [i, own];
  });
  return found;
}
