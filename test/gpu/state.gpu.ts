/** Two functions of one plan on a real device: they share a weight and a state that outlives calls. */
import { describe, it } from 'node:test';
import { cudaScheduling } from '../../codegen/cuda/scheduling.js';
import { compileCudaKernels, emitCudaPlan } from '../../driver/targets/cudaKernels.js';
import { linkFunction } from '../../ir/plan.js';
import { cudaAvailable } from '../../runtime/cuda/addon.js';
import { openCudaExecutor } from '../../runtime/cuda/openExecutor.js';
import { PACK_SYMBOL } from '../../runtime/cuda/packKernels.js';
import { checkMemoryCalls } from '../support/memoryCalls.js';
import { memoryPlan } from '../support/memoryFunction.js';
import { scaleTensor, stateKernels, statePlan } from '../support/statePlan.js';
import { checkStateCalls } from '../support/stateCalls.js';
import { archOf } from './launcher.js';
import { compilerOrReason } from './support.js';

const available = cudaAvailable();
const arch = archOf(available);
const compiler = typeof arch === 'string' ? await compilerOrReason(arch) : arch.reason;
const skip = typeof compiler === 'string' ? compiler : false;

describe('functions with state', { skip }, () => {
  it('see what earlier calls of either wrote', async () => {
    if (typeof arch !== 'string') throw new Error('no device');
    const plan = statePlan();
    const kernels = stateKernels(plan);
    const distinct = new Map(
      Object.values(kernels)
        .flat(2)
        .map((text) => [text.symbol, text]),
    );
    const { cubins } = await compileCudaKernels({ distinct }, arch);
    const executor = await openCudaExecutor({
      plan,
      kernels,
      cubins,
      packCubin: cubins.get(PACK_SYMBOL)!,
      tensors: scaleTensor(4),
      ordinals: [0],
    });
    await checkStateCalls(executor);
    await executor.close();
  });

  it('compiled from a graph find in a call what earlier calls wrote', async () => {
    if (typeof arch !== 'string') throw new Error('no device');
    const plan = memoryPlan(cudaScheduling, { arch, sharedBytesPerBlock: 99 << 10, multiprocessors: 16 });
    const { kernels, distinct } = emitCudaPlan(linkFunction(plan, 'remember'));
    const { cubins } = await compileCudaKernels({ distinct }, arch);
    const executor = await openCudaExecutor({
      plan,
      kernels: { remember: kernels },
      cubins,
      packCubin: cubins.get(PACK_SYMBOL)!,
      tensors: new Map(),
      ordinals: [0],
    });
    await checkMemoryCalls(executor);
    await executor.close();
  });
});
