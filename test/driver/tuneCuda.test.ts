/** `tune` of an artifact for a GPU on a machine without one. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import type { CudaModel } from '../../driver/targets/cudaKernels.js';
import { tuneOnCuda } from '../../driver/targets/tuning.js';
import { UserError } from '../../errors.js';
import { cudaAvailable } from '../../runtime/cuda/addon.js';
import { CAPACITY, cudaModule } from '../autotune/cuda/fixture.js';

const hasGpu = cudaAvailable().ok;
if (hasGpu) console.warn('SKIPPED tuning without a GPU: there is one here.');

describe.skipIf(hasGpu)('tuneOnCuda', () => {
  it('says that there is no GPU and what to type, and leaves no database behind', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tilewright-no-gpu-'));
    const database = join(folder, 'tuning.jsonl');
    const { weights, interface: convention, buffers, kernels } = cudaModule();
    const score = {
      interface: convention,
      buffers,
      kernels,
      launches: [],
      capacity: CAPACITY,
      arenaBytes: 0,
      placements: [],
      buckets: [CAPACITY],
      schedules: [{}],
    };
    const plan = { weights, constants: [], states: [], functions: [score] };
    const device = cudaDevice(TYPICAL_FACTS.sm_90a);
    const model: CudaModel = {
      target: cuda,
      device,
      isa: 'cuda:sm_90a',
      arithmetic: 'bf16',
      mask: 'tree',
      graphText: '',
      graphs: { all: '', score: '' },
      plan,
    };
    const nothing = (): void => undefined;
    const failure = await tuneOnCuda(model, {
      budgetSeconds: 1,
      database,
      rebuild: (target) => `tilewright compile model for ${target}`,
      onProgress: nothing,
      onActivity: nothing,
      onNote: nothing,
      onWarning: nothing,
    }).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(UserError);
    expect(failure).toMatchObject({ hint: expect.stringContaining('tilewright compile model for cpu') });
    expect(existsSync(database)).toBe(false);
    rmSync(folder, { recursive: true });
  });
});
