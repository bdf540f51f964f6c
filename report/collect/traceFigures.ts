/** Sums over the tracks of a trace: devices, kernels, phases of starting up. */
import type { DeviceUse, Figure, KernelUse, Phase, TraceKernel, Track, WeightLoads } from '../document/machine.js';

const MICROSECOND = 1e-6;
const MAX_LOADS = 20;
/** Phases on a page: those of a thousand processes. */
const MAX_PHASES = 10_000;

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

/** The sum of a column; null where a slice lacks it. */
function total({ figures, begin }: Track, name: Figure): number | null {
  const column = figures[name];
  if (column === undefined) return begin.length === 0 ? 0 : null;
  return column.includes(null) ? null : sum(column as readonly number[]);
}

/** The time in which a track had a slice; those that share one say so themselves. */
function busySeconds({ begin, duration, figures }: Track): number {
  let [seconds, end] = [0, -Infinity];
  for (const [i, from] of begin.entries()) {
    const known = figures.busySeconds?.[i];
    const to = from + duration[i]!;
    seconds += known ?? Math.max(0, to - Math.max(from, end)) * MICROSECOND;
    end = Math.max(end, to);
  }
  return seconds;
}

/** Devices are the processes that compute. */
export function devicesOf(tracks: readonly Track[]): readonly DeviceUse[] {
  const names = new Set(tracks.filter(({ kind }) => kind === 'compute').map(({ process }) => process));
  const of = (kind: Track['kind']): readonly Track[] => tracks.filter((track) => track.kind === kind);
  const [first, last] = of('compute').reduce(
    ([from, to], { begin, duration }) => [
      begin.reduce((least, at) => Math.min(least, at), from),
      begin.reduce((most, at, i) => Math.max(most, at + duration[i]!), to),
    ],
    [Infinity, -Infinity],
  );
  return [...names].map((process): DeviceUse => {
    const own = tracks.filter((track) => track.process === process);
    const seconds = (kind: Track['kind']): number => sum(own.filter((track) => track.kind === kind).map(busySeconds));
    const compute = own.filter(({ kind }) => kind === 'compute');
    const flops = compute.map((track) => total(track, 'flops'));
    const computeSeconds = seconds('compute');
    return {
      process,
      slices: sum(
        compute.map(({ begin, figures }) =>
          figures.batches === undefined ? begin.length : batchesOf(figures.batches),
        ),
      ),
      computeSeconds,
      copySeconds: seconds('copy'),
      idleSeconds: Math.max(0, (last! - first!) * MICROSECOND - computeSeconds),
      tokens: sum(compute.map((track) => total(track, 'tokens') ?? 0)),
      flops: flops.includes(null) ? null : sum(flops as readonly number[]),
    };
  });
}

const batchesOf = (batches: readonly (number | null)[]): number => sum(batches.map((each) => each ?? 1));

/** `layers.3.ffn.down` as `layers.*.ffn.down`. */
const foldLayer = (path: string): string => path.replace(/^layers\.\d+\./, 'layers.*.');

export function kernelUses(
  tracks: readonly Track[],
  labels: readonly string[],
  known: readonly TraceKernel[],
): readonly KernelUse[] {
  const anchors = new Map(known.map(({ path, anchor }) => [path, anchor]));
  interface Sum {
    anchor: string;
    launches: number;
    seconds: number;
    flops: number | null;
    bytes: number | null;
    peak: number | null;
  }
  const groups = new Map<string, Sum>();
  const add = (a: number | null, b: number | null | undefined): number | null =>
    a === null || b === null || b === undefined ? null : a + b;
  for (const { kind, duration, label, figures } of tracks) {
    if (kind !== 'kernel') continue;
    for (const [i, microseconds] of duration.entries()) {
      const name = labels[label[i]!]!;
      const path = foldLayer(name);
      const seconds = microseconds * MICROSECOND;
      const group = groups.get(path) ?? {
        anchor: anchors.get(name) ?? '',
        launches: 0,
        seconds: 0,
        flops: 0,
        bytes: 0,
        peak: 0,
      };
      const share = figures.shareOfPeak?.[i];
      groups.set(path, {
        anchor: group.anchor,
        launches: group.launches + 1,
        seconds: group.seconds + seconds,
        flops: add(group.flops, figures.flops?.[i]),
        bytes: add(group.bytes, figures.bytes?.[i]),
        peak: add(group.peak, share === undefined || share === null ? null : share * seconds),
      });
    }
  }
  return [...groups]
    .map(([path, { peak, ...use }]): KernelUse => ({
      path,
      ...use,
      shareOfPeak: peak === null || use.seconds === 0 ? null : peak / use.seconds,
    }))
    .sort((a, b) => b.seconds - a.seconds);
}

/** One weight among those that were loaded. */
const WEIGHT = /^read and pack /;

export const phasesOf = (tracks: readonly Track[], labels: readonly string[]): readonly Phase[] =>
  tracks
    .filter(({ kind }) => kind === 'startup')
    .flatMap(({ process, begin, duration, label }) =>
      begin.flatMap((from, i): Phase[] => {
        const name = labels[label[i]!]!;
        if (WEIGHT.test(name)) return [];
        return [{ process, name, begin: from * MICROSECOND, end: (from + duration[i]!) * MICROSECOND }];
      }),
    )
    .slice(0, MAX_PHASES);

export function loadsOf(tracks: readonly Track[], labels: readonly string[]): WeightLoads | undefined {
  const all = tracks
    .filter(({ kind }) => kind === 'startup')
    .flatMap(({ duration, label, figures }) =>
      duration.flatMap((microseconds, i) => {
        const name = labels[label[i]!]!;
        if (!WEIGHT.test(name)) return [];
        return [
          { name: name.replace(WEIGHT, ''), seconds: microseconds * MICROSECOND, bytes: figures.bytes?.[i] ?? 0 },
        ];
      }),
    );
  if (all.length === 0) return undefined;
  return {
    count: all.length,
    bytes: sum(all.map(({ bytes }) => bytes)),
    seconds: sum(all.map(({ seconds }) => seconds)),
    longest: all.toSorted((a, b) => b.seconds - a.seconds).slice(0, MAX_LOADS),
  };
}
