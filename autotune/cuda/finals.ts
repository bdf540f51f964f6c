/** Finals on a device: sequences that differ in one kernel's schedule take turns under the load of a real run. */
import type { CudaKernelText } from '../../ir/cuda.js';
import type { CudaAddon } from '../../runtime/cuda/addon.js';
import type { CudaDevice, CudaModule } from '../../runtime/cuda/nativeDevice.js';
import type { CudaProgram } from '../../runtime/cuda/nativeProgram.js';
import { launchTimes, sustain, type SustainOptions } from './interleave.js';
import { Hung, patiently } from './patience.js';
import type { SequenceBench } from './sequence.js';

/** A kernel compiled with one schedule. */
export interface Compiled {
  readonly text: CudaKernelText;
  readonly cubin: Uint8Array;
}

export interface ContestRequest extends SustainOptions {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  /** Kernels of the sequence, one list per contender. */
  readonly contenders: readonly (readonly Compiled[])[];
  /** Seconds after which a launch counts as hung. */
  readonly patienceSeconds: number | undefined;
}

/**
 * seconds[contender][round] of the sequence; undefined if it was aborted. Throws Error if a contender's results are not
 * numbers, Hung if the device does not answer, and CudaError.
 */
export async function contend(
  { addon, device, contenders, patienceSeconds, ...options }: ContestRequest,
  bench: SequenceBench,
): Promise<readonly (readonly number[])[] | undefined> {
  const made: { release(): void }[] = [];
  const modules = new Map<string, CudaModule>();
  const load = ({ text, cubin }: Compiled): CudaModule => {
    const known = modules.get(text.symbol);
    if (known !== undefined) return known;
    const module = new addon.Module(device, cubin);
    made.push(module);
    modules.set(text.symbol, module);
    return module;
  };
  try {
    const programs: CudaProgram[] = [];
    for (const parts of contenders) {
      const program = bench.program(parts.map((part) => ({ text: part.text, module: load(part) })));
      made.push(program);
      programs.push(program);
      await patiently(program.run({ extents: bench.sizes, inputs: [] }), patienceSeconds);
      await bench.requireNumbers();
    }
    const launches = [...(contenders[0] ?? []).keys()];
    return await sustain(
      programs.map((program, i) => ({
        name: String(i),
        time: launchTimes(program, launches, bench.sizes, { turn: launches.length, patienceSeconds }),
      })),
      options,
    );
  } catch (error) {
    // Memory that a hung kernel uses cannot be released. It is freed when the process exits.
    if (error instanceof Hung) made.length = 0;
    throw error;
  } finally {
    for (const resource of made.reverse()) resource.release();
  }
}
