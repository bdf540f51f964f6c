/**
 * Finals: schedules of one kernel in turn under a run's load, at the clock that the power limit leaves each. What is
 * faster in a moment's burst may take more energy, and so be slower for hours; and what is faster alone may be slower
 * beside the others of its layer, which share clocks and caches with it and start before it has ended.
 */
import type { CudaKernelText } from '../../ir/cuda.js';
import type { Bucket } from '../../ir/plan.js';
import type { CudaAddon, CudaDevice, CudaModule, CudaProgram } from '../../runtime/cuda/addon.js';
import { launchTimes, sustain, warmUp, type Contender } from './interleave.js';
import { Hung, patiently } from './patience.js';
import type { SequenceBench } from './sequence.js';
import type { CudaWorkbench } from './workbench.js';

/** Share of a final that is load before it: what the card's power control takes to settle. */
const LOAD_SHARE = 0.1;

/** A kernel under one schedule, compiled. */
export interface Compiled {
  readonly text: CudaKernelText;
  readonly cubin: Uint8Array;
}

export interface FinalRequest {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  readonly finalists: readonly Compiled[];
  readonly bucket: Bucket;
  /** Of the device, for all of them together. */
  readonly seconds: number;
  /** Seconds after which a launch counts as hung. */
  readonly patienceSeconds: number | undefined;
}

type Own = <T extends { release(): void }>(resource: T) => T;

/** Seconds of a launch of each finalist, which runs by itself. */
export const contendAlone = (request: FinalRequest, bench: CudaWorkbench): Promise<readonly number[]> =>
  contend(request, bench.launches, 1, (load, own) => request.finalists.map((finalist) => own(bench.program(finalist.text, load(finalist)))));

/**
 * Seconds of a whole sequence with each finalist in place `at` of it; `others`: what is in the other places. Throws
 * Error where the sequence leaves no numbers.
 */
export const contendInSequence = (request: FinalRequest, bench: SequenceBench, others: readonly Compiled[], at: number): Promise<readonly number[]> =>
  contend(request, others.map((_, i) => i), others.length, async (load, own) => {
    const { tokens, rows } = request.bucket;
    const programs = request.finalists.map((finalist) => own(bench.program(others.map((other, i) => {
      const part = i === at ? finalist : other;
      return { text: part.text, module: load(part) };
    }))));
    for (const program of programs) await patiently(program.run({ tokens, rows, inputs: [] }), request.patienceSeconds);
    await bench.requireNumbers();
    return programs;
  });

/** `turn`: launches that are one turn of a program. */
async function contend(
  { addon, device, bucket, seconds, patienceSeconds }: FinalRequest, launches: readonly number[], turn: number,
  bind: (load: (compiled: Compiled) => CudaModule, own: Own) => readonly CudaProgram[] | Promise<readonly CudaProgram[]>,
): Promise<readonly number[]> {
  const made: { release(): void }[] = [];
  const own: Own = (resource) => {
    made.push(resource);
    return resource;
  };
  const modules = new Map<string, CudaModule>();
  const load = ({ text, cubin }: Compiled): CudaModule => {
    const module = modules.get(text.symbol) ?? own(new addon.Module(device, cubin));
    modules.set(text.symbol, module);
    return module;
  };
  try {
    const contenders = (await bind(load, own)).map((program, i): Contender => ({ name: String(i), time: launchTimes(program, launches, bucket, { turn, patienceSeconds }) }));
    if (contenders[0] !== undefined) await warmUp(contenders[0], LOAD_SHARE * seconds);
    return await sustain(contenders, (1 - LOAD_SHARE) * seconds);
  } catch (error) {
    // What a hung kernel uses cannot be taken from it: the process ends with it.
    if (error instanceof Hung) made.length = 0;
    throw error;
  } finally {
    for (const resource of made.reverse()) resource.release();
  }
}
