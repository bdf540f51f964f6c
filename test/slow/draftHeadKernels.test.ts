/** What NVIDIA's compiler makes of an EAGLE-3 head of a real shape: its function, and what a step keeps for it. */
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { emitCudaKernel } from '../../codegen/cuda/index.js';
import { modelFunctions, openModel } from '../../driver/functions.js';
import { planFunction } from '../../driver/plan.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaNumerics, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import { DRAFT, RESERVED_ROWS, STEP } from '../../ir/function.js';
import { stepBuckets } from '../../ir/stepping.js';
import { lowerModule } from '../../passes/runPasses.js';

import { compileByNvcc, hasNvcc } from '../support/nvcc.js';

if (!hasNvcc) process.stderr.write('SKIPPED test/slow/draftHeadKernels: nvcc is not on PATH\n');

describe.runIf(hasNvcc)('kernels of an EAGLE-3 head beside an 8B model', () => {
  it('compile, and spill no register', () => {
    const folderOf = (name: string): string => fileURLToPath(new URL(`../../bench/models/${name}`, import.meta.url));
    const checkpoint = openModel(folderOf('llama-8b'), { kind: 'random', seed: 1 }, folderOf('llama-8b-eagle3'));
    const numerics = cudaNumerics('bf16');
    const functions = modelFunctions(checkpoint, numerics, { cacheRows: RESERVED_ROWS, feeds: true, logits: true });
    const { functions: lowered } = lowerModule(functions, numerics);
    const buckets = stepBuckets([{ extents: { T: 256 }, longest: 256 }], [1, 16, 64], { isFiltering: true });
    const texts = lowered
      .filter(({ interface: { name } }) => name === DRAFT || name === STEP)
      .flatMap((module) => {
        const plan = planFunction(module, buckets.at(-1)!, buckets, cuda.compiler.scheduling, {
          ...TYPICAL_FACTS['sm_90a'],
        } as never);
        const isDraft = module.interface.name === DRAFT;
        return module.kernels.flatMap((kernel, i) =>
          isDraft || kernel.path.startsWith('features')
            ? plan.schedules.map((chosen) =>
                emitCudaKernel(kernel, module, chosen[plan.launches[i]!.signature]! as never, buckets.at(-1)!.extents),
              )
            : [],
        );
      });
    const unique = [...new Map(texts.map((text) => [text.symbol, text])).values()];
    const reports = compileByNvcc(unique, 'sm_90a');
    expect(unique.length).toBeGreaterThan(10);
    expect(
      reports.flatMap(({ spillStores, spillLoads }, i) => (spillStores + spillLoads > 0 ? [unique[i]!.symbol] : [])),
    ).toEqual([]);
  });
});
