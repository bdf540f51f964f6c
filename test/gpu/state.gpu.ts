/** Functions with state on a real device, compiled from their graphs: they share a weight and memory between calls. */
import { describe, it } from 'node:test';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { compileCudaKernels, emitCudaPlan } from '../../driver/targets/cudaKernels.js';
import type { CudaPlan } from '../../ir/plan.js';
import { cudaAvailable } from '../../runtime/cuda/addon.js';
import { openCudaExecutor } from '../../runtime/cuda/openExecutor.js';
import { PACK_SYMBOL } from '../../runtime/cuda/packKernels.js';
import type { Executor } from '../../runtime/executor.js';
import { checkMemoryCalls, memoryPlan } from '../support/memoryFunction.js';
import { checkStateCalls, scaleTensor, statePlan } from '../support/statePlan.js';
import { archOf } from './launcher.js';
import { compilerOrReason } from './support.js';

const available = cudaAvailable();
const arch = archOf(available);
const compiler = typeof arch === 'string' ? await compilerOrReason(arch) : arch.reason;
const skip = typeof compiler === 'string' ? compiler : false;

describe('functions with state', { skip }, () => {
  if (typeof arch !== 'string') return;
  const facts = { arch, sharedBytesPerBlock: 99 << 10, multiprocessors: 16 };

  async function check(plan: CudaPlan, calls: (executor: Executor) => Promise<void>): Promise<void> {
    if (typeof arch !== 'string') throw new Error('no device');
    const { kernels, distinct } = emitCudaPlan(plan);
    const { cubins } = await compileCudaKernels({ distinct }, arch);
    const packCubin = cubins.get(PACK_SYMBOL)!;
    const tensors = scaleTensor(4);
    const executor = await openCudaExecutor({ plan, kernels, cubins, packCubin, tensors, ordinals: [0] });
    await calls(executor);
    await executor.close();
  }

  it('see what earlier calls of either wrote', () => check(statePlan(cudaScheduling, facts), checkStateCalls));

  it('read and write in one call', () => check(memoryPlan(cudaScheduling, facts), checkMemoryCalls));
});
