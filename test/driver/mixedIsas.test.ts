/** A plan for AVX-512 may have tiles of AVX2, which the tuner or an artifact chose: all of them compile together. */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { unitsOf } from '../../codegen/cpu/index.js';
import { compileModel } from '../../driver/compile/compile.js';
import { cpu } from '../../driver/targets/cpu.js';
import { cpuDeviceFor, detectMachine } from '../../driver/targets/cpuDevice.js';
import { emitCpuPlan } from '../../driver/targets/cpuKernels.js';
import type { CpuSchedule } from '../../ir/plan.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import { compileShared } from '../../runtime/cpu/compiler.js';
import { readSettings } from '../../settings.js';

const DEMO = join(import.meta.dirname, '..', '..', 'models', 'demo');
const machine = detectMachine();

/** Weights of 16 bits, read by tiles of `isa`. */
function kernelsWith(isa: 'avx2' | 'portable'): ReturnType<typeof emitCpuPlan> {
  const device = cpuDeviceFor({ ...machine, isas: ['portable', 'avx2', 'avx512'] }, 'avx512');
  const { plan } = compileModel(openCheckpoint(DEMO), cpu, device, { batchTokens: 64 });
  const lower = (schedule: CpuSchedule): CpuSchedule =>
    schedule.kind === 'gemm' ? { ...schedule, isa, mr: 2, nr: 16 } : schedule;
  const functions = plan.functions.map((fn) => ({
    ...fn,
    schedules: fn.schedules.map((own) =>
      Object.fromEntries(Object.entries(own).map(([key, schedule]) => [key, lower(schedule)])),
    ),
  }));
  return emitCpuPlan({ ...plan, functions });
}

describe.each(['avx2', 'portable'] as const)('tiles of %s in a plan for avx512', (isa) => {
  it('compile with its flags', async () => {
    const { kernels } = kernelsWith(isa);
    const all = Object.values(kernels).flatMap((own) => own.flat());
    const settings = { ...readSettings(), cacheDir: mkdtempSync(join(tmpdir(), 'tilewright-mixed-')) };
    expect(all.some(({ source }) => source.includes(isa === 'avx2' ? 'FMA_TILE(avx2, ' : 'portable'))).toBe(true);
    await compileShared(unitsOf(kernels), { isa: 'avx512', settings });
  });
});
