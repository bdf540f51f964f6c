/** Weights onto a real device, as an executor loads them. */
import type { CudaArch } from '../../ir/cuda.js';
import { type CudaAddon, cudaAvailable, loadCudaAddon } from '../../runtime/cuda/addon.js';
import { compileCubins } from '../../runtime/cuda/compiler.js';
import { planLoading } from '../../runtime/cuda/loadPlan.js';
import type { CudaDevice, CudaMemory, CudaModule } from '../../runtime/cuda/native.js';
import { PACK_SOURCE, PACK_SYMBOL } from '../../runtime/cuda/packKernels.js';
import { loadDeviceWeights, type LoadTimes } from '../../runtime/cuda/weights.js';
import type { WeightPlan } from '../../runtime/weightPlan.js';
import { compilerOrReason } from './support.js';

const available = cudaAvailable();
const arch: CudaArch = available.ok && available.devices[0]?.capability[0] === 9 ? 'sm_90a' : 'sm_80';
const compiler = available.ok ? await compilerOrReason(arch) : '';
export const skip = !available.ok ? available.reason : typeof compiler === 'string' ? compiler : false;

export interface LoadBench {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  readonly pack: CudaModule;
  release(): void;
}

/** A device with the code that lays out weights. */
export async function open(): Promise<LoadBench> {
  const { cubins } = await compileCubins([{ symbol: PACK_SYMBOL, source: PACK_SOURCE }], { arch });
  const addon = loadCudaAddon();
  const device = new addon.Device(0);
  const pack = new addon.Module(device, cubins.get(PACK_SYMBOL)!);
  return {
    addon,
    device,
    pack,
    release: () => {
      pack.release();
      device.release();
    },
  };
}

/** Loads a plan's weights into memory full of NaN. Returns how long each step took. */
export async function load(
  { addon, device, pack }: LoadBench,
  weightPlan: WeightPlan,
  staging?: number,
): Promise<{ readonly memory: CudaMemory; readonly times: LoadTimes }> {
  const memory = new addon.Memory(device, weightPlan.packedBytes);
  memory.fill(0xff);
  device.synchronize();
  const times = await loadDeviceWeights({
    addon,
    device,
    pack,
    weightPlan,
    loadPlan: planLoading(weightPlan, staging),
    weights: memory,
  });
  return { memory, times };
}
