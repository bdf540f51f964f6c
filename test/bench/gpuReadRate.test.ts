/** The kernel that measures how fast memory is read: its text for NVIDIA's compiler, and what is made of its times. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { measureReadRate, READ_SYMBOL } from '../../bench/gpuLab.js';
import type { CudaAddon } from '../../runtime/cuda/addon.js';
import type { CudaTimeRequest } from '../../runtime/cuda/native.js';
import { fakeCuda } from '../runtime/cuda/fakeCudaAddon.js';
import { hasNvcc } from '../support/nvcc.js';

/** Milliseconds of a launch. */
const LAUNCH = 0.5;

async function measure(): Promise<{ readonly rate: number; readonly source: string; readonly live: number }> {
  const { addon: base, state } = fakeCuda({ modules: { read: { [READ_SYMBOL]: () => undefined } } });
  class Program extends base.Program {
    override time({ repeats, perSample = 1 }: CudaTimeRequest): Promise<Float64Array> {
      return Promise.resolve(new Float64Array(repeats).fill(LAUNCH * perSample));
    }
  }
  const addon: CudaAddon = { ...base, Program };
  const device = new addon.Device(0);
  const runUp = new addon.Memory(device, 256);
  const before = state.live;
  let source = '';
  const rate = await measureReadRate(
    {
      addon,
      device,
      runUp,
      compile: ([unit]) => {
        source = unit!.source;
        return Promise.resolve({ cubins: new Map([[READ_SYMBOL, Buffer.from('read')]]), failures: new Map() });
      },
    },
    3,
    0.001,
  );
  return { rate, source, live: state.live - before };
}

it('divides the bytes that the text reads by the time, and releases everything', async () => {
  const { rate, source, live } = await measure();
  const bytes = Number(/Reads (\d+) bytes/.exec(source)![1]);
  expect(bytes % 65_536).toBe(0);
  expect(rate).toBeCloseTo(bytes / (LAUNCH * 1e-3), 0);
  expect(live).toBe(0);
});

it.skipIf(!hasNvcc)('compiles', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-read-'));
  try {
    writeFileSync(join(folder, 'read.cu'), (await measure()).source);
    execFileSync('nvcc', ['-cubin', '-arch=sm_90a', '-Werror=all-warnings', '-o', 'read.cubin', 'read.cu'], {
      cwd: folder,
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
});
