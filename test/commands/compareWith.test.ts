/** The second pass of a run that is compared: the same request in another arithmetic. */
import { describe, expect, it } from 'vitest';
import { baselineOf } from '../../commands/compareWith.js';
import type { ScoreRequest } from '../../commands/runRequest.js';
import type { WithTargetChoice } from '../../driver/precision.js';

const asked: WithTargetChoice<ScoreRequest> = {
  ...{ model: 'm', init: { kind: 'checkpoint' }, precision: 'bf16', sharing: 'tree', resume: false, threads: 2 },
  ...{ trace: 'trace.json', dump: 'stages', limit: 10, compareWith: { kind: 'precision', precision: 'f32' } },
};
const kept = { model: 'm', init: { kind: 'checkpoint' }, sharing: 'tree', resume: false, threads: 2, limit: 10 };

describe('a baseline', () => {
  it('keeps the questions, and writes no trace and no stages', () => {
    expect(baselineOf(asked, '16bit')).toEqual({ ...kept, precision: 'auto' });
    expect(baselineOf({ ...asked, target: 'cuda', devices: 4 }, 'f16')).toEqual({
      ...kept,
      ...{ precision: 'f16', target: 'cuda', devices: 4 },
    });
  });

  it('in f32 is computed on the CPU, without what is for GPUs or for 16 bits', () => {
    expect(baselineOf({ ...asked, target: 'cuda', devices: 4 }, 'f32')).toEqual({
      ...kept,
      ...{ precision: 'f32', target: 'cpu' },
    });
    expect(baselineOf({ ...asked, target: 'cpu', devices: 2, isa: 'amx' }, 'f32')).toEqual({
      ...kept,
      ...{ precision: 'f32', target: 'cpu', devices: 2 },
    });
    expect(baselineOf({ ...asked, target: 'cpu', isa: 'avx2' }, 'f32')).toMatchObject({ isa: 'avx2' });
  });
});
