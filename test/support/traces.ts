/** Traces as a run of a large model on several GPUs would leave them, and tuning records, made by arithmetic alone. */
import type { StartUp } from '../../evaluate/startUp.js';
import type { TraceFacts } from '../../report/document/machine.js';

export interface MadeTrace {
  readonly devices: number;
  readonly stages: number;
  readonly layers: number;
  /** Of each replica. */
  readonly batches: number;
}

interface Event {
  readonly [name: string]: unknown;
}

const PEAKS = {
  arithmetic: { perSecond: 9.89e14, source: 'nominal' },
  memory: { perSecond: 4.2e12, source: 'measured' },
} as const;

/** Kernels of a layer of about a billion parameters, at 8,448 tokens: FLOPs, bytes, share of peak. */
const LAYER = [
  ['attention.qkv', 'gemm', 1.45e12, 3.2e8, 0.71],
  ['attention.mix', 'attention', 1.2e11, 2.6e8, 0.34],
  ['attention.o', 'gemm', 8.1e11, 3.4e8, 0.68],
  ['ffn.gate_up', 'gemm', 3.9e12, 6.3e8, 0.76],
  ['ffn.down', 'gemm', 1.95e12, 5.1e8, 0.73],
] as const;

const MIB = 1 << 20;
/** Repeatable noise between 0 and 1. */
const noise = (i: number): number => Math.abs(Math.sin(12.9898 * (i + 1)) * 43758.5453) % 1;

function factsOf({ layers, devices, stages }: MadeTrace): TraceFacts {
  const paths = [
    ['embed', 'loop'],
    ...Array.from({ length: layers }, (_, layer) =>
      LAYER.map(([name, anchor]) => [`layers.${layer}.${name}`, anchor]),
    ).flat(),
    ['head', 'logprob'],
  ] as const;
  const kernels = paths.map(([path, anchor]) => ({
    ...{ path: path!, anchor: anchor! },
    signature: path!.replace(/^layers\.\d+\./, ''),
  }));
  const last = kernels.length - 1;
  const buffers: TraceFacts['memory']['buffers'][number][] = [
    { name: 'tokens', offset: 540 * MIB, bytes: 4 * MIB, first: 0, last },
  ];
  for (let layer = 0; layer < layers; layer++) {
    const at = 1 + 5 * layer;
    const side = layer % 2 === 0;
    const add = (name: string, offset: number, size: number, first: number, until: number): void => {
      const bytes = size * MIB;
      buffers.push({ name: `${name}${layer}`, offset: offset * MIB, bytes, first, last: Math.min(last, until) });
    };
    add('h', side ? 0 : 130, 130, Math.max(0, at - 1), at + 2);
    add('q', 260, 130, at, at + 1);
    add('kv', 390, 34, at, at + 1);
    add('attended', 424, 100, at + 1, at + 2);
    add('h_mid', side ? 130 : 0, 130, at + 2, at + 4);
    add('activated', 260, 280, at + 3, at + 4);
  }
  return {
    ...{ format: 1, version: '0.1.0', model: 'made-70b', isa: 'cuda:sm_90a', arithmetic: 'bf16' },
    ...{ replicas: devices / stages, stages, peaks: PEAKS, kernels },
    memory: {
      arenaBytes: 544 * MIB,
      buffers,
      states: [{ name: 'keys', bytes: 3 * 1024 * MIB }],
      weights: { packedBytes: 140e9, mappedBytes: 0 },
    },
  };
}

/** The contents of a trace file. */
export function madeTrace(of: MadeTrace): { readonly otherData: unknown; readonly traceEvents: readonly Event[] } {
  const { devices, stages, layers, batches } = of;
  const events: Event[] = [];
  const slice = (name: string, cat: string, pid: number, tid: number, ts: number, dur: number, args = {}): void => {
    events.push({ name, cat, ph: 'X', ts, dur, pid, tid, args });
  };
  const named = (pid: number, name: string, sort = pid): void => {
    events.push({ name: 'process_name', ph: 'M', pid, args: { name } });
    events.push({ name: 'process_sort_index', ph: 'M', pid, args: { sort_index: sort } });
  };
  const thread = (pid: number, tid: number, name: string): void => {
    events.push({ name: 'thread_name', ph: 'M', pid, tid, args: { name } });
  };
  named(devices + 2, 'command', 0);
  thread(devices + 2, 1, 'start-up');
  thread(devices + 2, 2, 'start-up, at the same time');
  const phases = [
    ['process', 0, 0.31],
    ['questions', 0.31, 0.52],
    ['open', 0.52, 0.61],
    ['compile', 0.61, 2.4],
    ['first micro-batch', 14.1, 14.6],
  ] as const;
  for (const [name, begin, end] of phases) slice(name, 'startup', devices + 2, 1, begin * 1e6, (end - begin) * 1e6);
  slice('tokenize', 'startup', devices + 2, 2, 0.61e6, 3.1e6);
  slice('pack', 'startup', devices + 2, 2, 3.72e6, 0.2e6);
  const flopsOf = LAYER.reduce((sum, [, , flops]) => sum + flops, 0) * (layers / stages);
  const bytesOf = LAYER.reduce((sum, [, , , bytes]) => sum + bytes, 0) * (layers / stages);
  const least = LAYER.reduce(
    (sum, [, , flops, bytes]) => sum + Math.max(flops / PEAKS.arithmetic.perSecond, bytes / PEAKS.memory.perSecond),
    0,
  );
  for (let device = 0; device < devices; device++) {
    const pid = device + 1;
    named(pid, `device ${device}`);
    ['compute', 'copies to the next stage', 'gaps', 'start-up'].forEach((name, i) => thread(pid, i + 1, name));
    const start = 0.7e6 + 0.05e6 * device;
    slice('compile', 'startup', pid, 4, start, 1.9e6);
    slice('kernels', 'startup', pid, 4, start + 1.9e6, 2.2e6);
    slice('weights', 'startup', pid, 4, start + 4.1e6, 9.1e6 + 0.2e6 * noise(device), { bytes: 35e9 });
    const stage = device % stages;
    let now = 14.1e6 + stage * 0.33e6;
    let idleFrom = 14.1e6;
    for (let batch = 0; batch < batches; batch++) {
      const seconds = (least / 0.7) * (layers / stages) * (0.85 + 0.3 * noise(batch * 7 + (device >> 1)));
      const wait = noise(batch * 13 + device) < 0.06 ? 0.12e6 * noise(batch) : 0.0004e6;
      if (wait > 1000) slice('idle', 'idle', pid, 3, now, wait);
      else if (batch === 0 && now > idleFrom) slice('idle', 'idle', pid, 3, idleFrom, now - idleFrom);
      now += wait;
      const tokens = 7900 + Math.round(540 * noise(batch));
      slice(`micro-batch ${batch}`, 'compute', pid, 1, now, seconds * 1e6, {
        ...{ tokens, rows: tokens >> 1, flops: flopsOf, bytes: bytesOf },
        shareOfPeak: (least * (layers / stages)) / seconds,
      });
      now += seconds * 1e6;
      if (stage < stages - 1) slice(`micro-batch ${batch}`, 'copy', pid, 2, now, 4200, { tokens, rows: tokens >> 1 });
      idleFrom = now;
    }
  }
  const pid = devices + 1;
  named(pid, 'kernels, timed one by one after the run');
  thread(pid, 1, 'kernels');
  let now = Math.max(...events.map(({ ts = 0, dur = 0 }) => Number(ts) + Number(dur)));
  const launch = (name: string, flops: number, bytes: number, share: number, batch: number): void => {
    const seconds = Math.max(flops / PEAKS.arithmetic.perSecond, bytes / PEAKS.memory.perSecond) / share;
    const args = { tokens: 8448, rows: 4224, batch, flops, bytes, shareOfPeak: share };
    slice(name, 'kernel', pid, 1, now, seconds * 1e6, args);
    now += seconds * 1e6;
  };
  for (let batch = 0; batch < 3; batch++) {
    launch('embed', 0, 2.8e8, 0.8, batch);
    for (let layer = 0; layer < layers; layer++)
      for (const [name, , flops, bytes, share] of LAYER)
        launch(`layers.${layer}.${name}`, flops, bytes, share * (0.94 + 0.08 * noise(layer + batch)), batch);
    launch('head', 4.4e12, 6e8, 0.74, batch);
  }
  return { otherData: { tilewright: factsOf(of) }, traceEvents: events };
}

// A start as results and traces keep it, in which nearly everything overlaps.

/** `own`: the name of a phase that no known one has, which lies on the critical path. */
export const madeStart = (own = 'download'): StartUp => ({
  seconds: 1.1,
  criticalPath: [
    { process: 'command', phase: 'process', begin: 0, seconds: 0.1 },
    { process: 'command', phase: own, begin: 0.1, seconds: 0.2 },
    { process: 'device process', phase: 'weights', begin: 0.3, seconds: 0.59 },
    { process: null, phase: null, begin: 0.89, seconds: 0.06 },
    { process: 'command', phase: 'first micro-batch', begin: 0.95, seconds: 0.15 },
  ],
  phases: [
    { process: 'command', phase: 'process', begin: 0, end: 0.1, spareSeconds: 0 },
    { process: 'device process', phase: 'process', begin: 0.05, end: 0.15, spareSeconds: 0.15 },
    { process: 'command', phase: own, begin: 0.1, end: 0.3, spareSeconds: 0 },
    { process: 'device process', phase: 'kernels', begin: 0.3, end: 0.59, spareSeconds: 0.3 },
    {
      ...{ process: 'device process', phase: 'weights', begin: 0.3, end: 0.89, spareSeconds: 0 },
      ...{ bytes: 16e9, movingSeconds: 0.5 },
    },
    { process: 'command', phase: 'tokenize ahead', begin: 0.4, end: 0.8 },
    { process: 'command', phase: 'first micro-batch', begin: 0.95, end: 1.1, spareSeconds: 0 },
  ],
});

// Lines of tuning records of an imaginary GPU.

const MACHINE = { gpu: 'NVIDIA Made/132', arch: 'sm_90a', driver: 13_000, compiler: 'nvcc 13', codegen: 'ab' };
const place = (key: string, tokens: number): object => ({
  ...{ version: 1, key, cuda: MACHINE },
  bucket: { extents: { T: tokens }, longest: 1 },
});
const schedule = (tile: number): object => ({ kind: 'gemm', tile });
const at = (second: number): { readonly timestamp: string } => ({
  timestamp: new Date(1_700_000_000_000 + 1000 * second).toISOString(),
});

/** `second`: after the first trial. No `seconds`: the schedule failed. */
export const trialLine = (key: string, tokens: number, tile: number, seconds: readonly number[], second: number) => ({
  ...place(key, tokens),
  ...{ schedule: schedule(tile), seconds, ...at(second) },
  ...(seconds.length === 0 ? { failure: 'its result differs' } : {}),
});

/** A kernel of 10¹² FLOPs whose default has a tile of 64. */
export const jobLine = (key: string, tokens: number, count = 60, kernel = 'layers.0.ffn.down') => ({
  ...place(key, tokens),
  job: {
    ...{ kernel, count, signature: key, schedule: schedule(64) },
    ...{ flops: 1e12, bytes: 1e9, estimateSeconds: 0.002 },
    product: { dtype: 'bf16', m: tokens, n: 8192, k: 4096 },
  },
  ...at(0),
});

export const finalLine = (
  key: string,
  tokens: number,
  first: readonly [tile: number, seconds: number],
  second: readonly [tile: number, seconds: number],
  marginSeconds: number,
) => ({
  ...place(key, tokens),
  bucket: { extents: { T: tokens, R: tokens }, longest: 256 },
  final: [first, second].map(([tile, seconds]) => ({ schedule: schedule(tile), seconds })),
  ...{ marginSeconds, ...at(99) },
});

export const peaksLine = () => ({
  ...{ version: 1, cuda: MACHINE, ...at(0) },
  peaks: {
    arithmetic: { perSecond: 1e15, source: 'nominal' },
    memory: { perSecond: 4e12, source: 'measured' },
  },
});

/** The vendor's time for the product of `jobLine` at 1,024 tokens. */
export const rivalLine = () => ({
  version: 1,
  rival: {
    library: 'cuBLASLt 13.0',
    gpu: MACHINE.gpu,
    driver: MACHINE.driver,
    dtype: 'bf16',
    m: 1024,
    n: 8192,
    k: 4096,
  },
  ...{ name: 'nvjet', seconds: [0.0024], ...at(5) },
});
