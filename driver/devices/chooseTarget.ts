/** Resolves `--target auto` on this machine: a GPU if one is present and can hold the model, otherwise the CPU. */
import { UserError } from '../../errors.js';
import type { CudaArch } from '../../ir/cuda.js';
import { cudaAvailable } from '../../runtime/cuda/addon.js';
import { findCudaCompiler } from '../../runtime/cuda/compiler.js';
import type { CudaAvailability } from '../../runtime/cuda/native.js';
import { defined } from '../../system/defined.js';
import { bytes } from '../../system/text.js';
import { readManifest } from '../artifact/manifest.js';
import { openModel } from '../functions.js';
import { isArtifact } from '../names.js';
import type { TargetChoice, TargetName } from '../precision.js';
import type { LoadRequest, Ui } from '../requests.js';
import { detectMachine } from '../targets/cpuDevice.js';
import { gpuReserve } from '../targets/cuda.js';
import { archOf, runsOn } from '../targets/cudaDevice.js';
import { deviceMemory } from './placement.js';

export interface ChosenTarget {
  /** Absent for an artifact, which has its own target. */
  readonly target?: TargetName;
  /** In words: `GPU (NVIDIA H100, 79 GiB; the weights take 2.05 GiB)`, `CPU (AMD EPYC 9654)`. */
  readonly device: string;
  /** For `--verbose`: why no GPU is used. */
  readonly detail?: string;
}

/** The facts that the choice depends on; tests provide their own. */
export interface TargetProbes {
  /** The processor's name. */
  cpu(): string;
  gpus(): CudaAvailability;
  /** Rejects with UserError if kernels cannot be compiled for the GPU. */
  requireCompiler(arch: CudaArch, driverVersion: number): Promise<unknown>;
  /** Bytes of the model's weights at 16 bits each. */
  weightBytes(): number;
}

export type TargetFacts = Pick<LoadRequest, 'model' | 'init'> &
  Partial<Pick<LoadRequest, 'draftModel' | 'precision' | 'isa' | 'devices' | 'parallel'>>;

function parametersOf({ model, init, draftModel }: TargetFacts): number {
  let sum = 0;
  for (const { shape } of openModel(model, init, draftModel).tensors.values()) sum += shape.reduce((a, b) => a * b, 1);
  return sum;
}

/** `Intel Xeon Gold 6448Y`, without marks and clocks. */
export const cpuName = (model: string): string =>
  model
    .replace(/\((R|TM)\)| CPU\b|@.*$/g, '')
    .replace(/ {2,}/g, ' ')
    .trim();

const hereAndNow = (facts: TargetFacts): TargetProbes => ({
  cpu: () => cpuName(detectMachine().cpu.model),
  gpus: () => cudaAvailable(),
  requireCompiler: (arch, driverVersion) => findCudaCompiler(arch, driverVersion),
  weightBytes: () => 2 * parametersOf(facts),
});

/** Number of GPUs that one copy of the model may be spread over, of the `count` present. */
function devicesOfCopy({ devices, parallel }: TargetFacts, count: number): number {
  if (typeof parallel === 'object') return Math.min(parallel.stages, count);
  if (typeof devices === 'number') return Math.min(devices, count);
  return devices === 'all' || parallel === 'auto' ? count : 1;
}

/** The target of a request, with the reason for it. Throws UserError if the model cannot be opened. */
export async function chooseTarget(
  request: TargetFacts & { readonly target?: TargetChoice },
  probes?: TargetProbes,
): Promise<ChosenTarget> {
  const { target = 'auto', model } = request;
  const found = probes ?? hereAndNow(request);
  const named = (kind: string): string => (kind === 'cpu' ? describeCpu(found) : describeGpu(kind));
  if (isArtifact(model)) return { device: named(readManifest(model).target.kind) };
  if (target !== 'auto') return { target, device: named(target) };
  return chooseForMachine(request, found);
}

/**
 * The request with the target that it asks for, or the choice of `auto`; an artifact has its own. The device is
 * reported first.
 */
export async function settleTarget<R extends TargetFacts & { readonly target?: TargetChoice }>(
  asked: R,
  ui?: Pick<Ui, 'note' | 'detail'>,
): Promise<Omit<R, 'target'> & Pick<ChosenTarget, 'target'>> {
  const { target, device, detail } = await chooseTarget(asked);
  ui?.note(`device: ${device}`);
  if (detail !== undefined) ui?.detail(detail);
  const { target: _, ...request } = asked;
  return { ...request, ...defined({ target }) };
}

/** `CPU (AMD EPYC 9654)` */
function describeCpu({ cpu }: Pick<TargetProbes, 'cpu'>): string {
  const name = cpu();
  return name === '' ? 'CPU' : `CPU (${name})`;
}

/** A GPU that was asked for: `GPU`, or `GPU (sm_90a)`. */
const describeGpu = (kind: string): string => (kind.includes(':') ? `GPU (${kind.replace(/^.*:/, '')})` : 'GPU');

export async function chooseForMachine(request: TargetFacts, probes: TargetProbes): Promise<ChosenTarget> {
  const own = describeCpu(probes);
  const cpu = (reason: string): ChosenTarget => ({ target: 'cpu', device: `${own}: ${reason}` });
  if (request.isa !== undefined) return cpu(`--isa ${request.isa} is an instruction set of CPUs`);
  if (request.precision === 'f32') return cpu('--precision f32 is for CPUs');
  const found = probes.gpus();
  if (!found.ok) return { target: 'cpu', device: own, detail: `no GPU is used: ${found.reason}` };
  const [first] = found.devices;
  if (first === undefined) return { target: 'cpu', device: own, detail: 'no GPU is used: the CUDA driver finds none' };
  const arch = archOf(first);
  if (arch === undefined) return cpu(`${first.name} is older than compute capability 8.0`);
  try {
    await probes.requireCompiler(arch, found.driverVersion);
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    return cpu(`there is no compiler for ${first.name}; tilewright doctor says more`);
  }
  const present = found.devices.filter((device) => runsOn(arch, device));
  const used = present.slice(0, devicesOfCopy(request, present.length));
  const room = used.reduce((sum, { totalBytes }) => sum + (deviceMemory() ?? totalBytes - gpuReserve(totalBytes)), 0);
  const needed = probes.weightBytes();
  const several = used.length === 1 ? first.name : `${used.length} × ${first.name}`;
  if (needed > room) {
    const more = present.length > used.length ? '; --parallel auto spreads it over all GPUs' : '';
    return cpu(`the weights take ${bytes(needed)}, and ${several} has room for ${bytes(room)}${more}`);
  }
  return { target: 'cuda', device: `GPU (${several}, room for ${bytes(room)}; the weights take ${bytes(needed)})` };
}
