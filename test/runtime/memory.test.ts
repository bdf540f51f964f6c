/** A function with state, compiled from its graph by the product's passes, generators and compilers, on a CPU. */
import { expect, it } from 'vitest';
import { cpuScheduling } from '../../codegen/cpu/scheduling.js';
import { compileKernels, emitPlan } from '../../driver/targets/cpuKernels.js';
import { linkFunction } from '../../ir/plan.js';
import { openCpuExecutor } from '../../runtime/cpu/openExecutor.js';
import { MEMORY_COLUMNS, MEMORY_ROWS, memoryPlan } from '../support/memoryFunction.js';
import { checkMemoryCalls } from '../support/memoryCalls.js';

it('finds in a call what earlier calls wrote', async () => {
  const plan = memoryPlan(cpuScheduling, { isas: ['portable'], l1: 32 << 10, l2: 1 << 20 });
  const { symbols } = await compileKernels(emitPlan(linkFunction(plan, 'remember')), 'portable');
  const executor = await openCpuExecutor({ plan, symbols: { remember: symbols }, tensors: new Map(), threads: 2 });
  try {
    expect(executor.capacity).toEqual({ remember: { N: 40, Q: 40 } });
    expect(executor.memory).toMatchObject({ stateBytes: expect.any(Number) as unknown });
    expect((executor.memory as unknown as { stateBytes: number }).stateBytes).toBeGreaterThanOrEqual(
      MEMORY_ROWS * MEMORY_COLUMNS * 4,
    );
    await checkMemoryCalls(executor);
  } finally {
    await executor.close();
  }
});
