/** A process whose kernel writes to an invalid address. */
import { KERNELS } from '../support/cudaKernels.js';

const url = (path: string): string => JSON.stringify(new URL(path, import.meta.url).href);

/**
 * Source of a module that runs such a kernel twice and prints a list of { code, isContextDead, isNamed } that shows how
 * each run was refused.
 */
export const trapScript = (): string => `
  const { loadAddon } = await import(${url('../../runtime/addon.js')});
  const { cudaAvailable } = await import(${url('../../runtime/cuda/addon.js')});
  cudaAvailable();
  const { cuda } = loadAddon();
  const device = new cuda.Device(0);
  const module = new cuda.Module(device, new TextEncoder().encode(${JSON.stringify(KERNELS)}));
  const memory = new cuda.Memory(device, 1024);
  const one = { kind: 'constant', count: 1 };
  const program = new cuda.Program({ device, extents: [{ name: 'T', most: 1 }, { name: 'R', most: 1 }],
    slots: [{ memory, offset: 0, bytes: 64 }], inputs: [], outputs: [],
    launches: [{ name: 'layers.3', module, symbol: 'tw_trap', slots: [0], tensorMaps: [], usesProgrammaticLaunch: false,
      launch: { threads: 1, sharedBytes: 0, cluster: 1, gridX: one, gridY: one } }] });
  const outcomes = [];
  for (let i = 0; i < 2; i++) {
    const call = { extents: [1, 0], inputs: [], isSynchronous: true };
    await program.run(call).catch(({ code, isContextDead, message }) => {
      outcomes.push({ code, isContextDead, isNamed: outcomes.length > 0 || message.includes('layers.3') });
    });
  }
  console.log(JSON.stringify(outcomes));`;
