import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { costOf } from '../../commands/modelLimits.js';
import { BatchWork } from '../../commands/work.js';
import { compileModel } from '../../driver/compile/compile.js';
import { cpu } from '../../driver/targets/cpu.js';
import { cpuDevice, detectMachine } from '../../driver/targets/cpuDevice.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import { scoreOf } from '../../ir/plan.js';
import { openCheckpoint } from '../../models/checkpoint.js';

const checkpoint = openCheckpoint(join(import.meta.dirname, '../../models/demo'));

describe('the cost of a micro-batch', () => {
  it('has steps on a GPU: any size between two whole waves costs as much as the larger one', () => {
    const model = compileModel(checkpoint, cuda, cudaDevice(TYPICAL_FACTS.sm_90a));
    const cost = costOf(model, new BatchWork(scoreOf(model.plan)));
    expect(scoreOf(model.plan).capacity.extents).toMatchObject({ T: 128 * 132, R: 128 * 132 });
    expect(cost(16_400, 6000, 100)).toBe(cost(16_896, 6000, 100));
    expect(cost(16_368, 6000, 100)).toBeLessThan(cost(16_400, 6000, 100));
    expect(cost(1, 1, 1)).toBe(cost(528, 1, 1));
  });

  it('has no steps on a CPU', () => {
    const model = compileModel(checkpoint, cpu, cpuDevice(detectMachine(), 'f32'));
    const cost = costOf(model, new BatchWork(scoreOf(model.plan)));
    expect(cost(1000, 10, 10)).toBeLessThan(cost(1001, 10, 10));
  });
});
