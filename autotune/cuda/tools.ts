/** The device code that measuring itself needs: random numbers, and the comparison with a reference. */
import type { CudaAddon } from '../../runtime/cuda/addon.js';
import type { CudaDevice, CudaModule } from '../../runtime/cuda/nativeDevice.js';
import type { CudaUnit } from '../../runtime/cuda/compiler.js';
import { PACK_SOURCE } from '../../runtime/cuda/packKernels.js';
import { COMPARE_SOURCE, COMPARE_SYMBOL } from './compare.js';
import { DeviceFill } from './fill.js';

/**
 * Machine code by symbol, and the kernels that did not compile: compileCubins with keepsGoing. Kernels not yet compiled
 * when `signal` is aborted appear in neither.
 */
export type CompileKernels = (
  units: readonly CudaUnit[],
  signal?: AbortSignal,
) => Promise<{
  readonly cubins: ReadonlyMap<string, Uint8Array>;
  readonly failures: ReadonlyMap<string, Error>;
}>;

export interface DeviceTools {
  readonly fill: DeviceFill;
  /** The compiled module of compare.ts. */
  readonly compare: CudaModule;
  release(): void;
}

/** Cache name of the runtime's own device code. */
const PACK_UNIT = 'tw_pack';

/** Throws UserError if there is no compiler, CudaError if the device fails. */
export async function loadDeviceTools({
  addon,
  device,
  compile,
}: {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  readonly compile: CompileKernels;
}): Promise<DeviceTools> {
  const { cubins, failures } = await compile([
    { symbol: PACK_UNIT, source: PACK_SOURCE },
    { symbol: COMPARE_SYMBOL, source: COMPARE_SOURCE },
  ]);
  const module = (symbol: string): CudaModule => {
    const cubin = cubins.get(symbol);
    if (cubin === undefined) throw failures.get(symbol) ?? new Error(`${symbol} was not compiled.`);
    return new addon.Module(device, cubin);
  };
  const pack = module(PACK_UNIT),
    compare = module(COMPARE_SYMBOL);
  const fill = new DeviceFill(addon, device, pack);
  return {
    fill,
    compare,
    release: () => {
      pack.release();
      compare.release();
    },
  };
}
