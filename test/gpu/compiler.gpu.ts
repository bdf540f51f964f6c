/** The machine's own NVRTC: found, and used to compile real code, with real messages. Needs no GPU. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { UserError } from '../../errors.js';
import { compileCubins, type CudaUnit } from '../../runtime/cuda/compiler.js';
import { isCubin } from '../../runtime/cuda/cubinCache.js';
import { compilerOrReason, freshSettings } from './support.js';

const compiler = await compilerOrReason('sm_90a', freshSettings({ nvcc: undefined }));
const skip =
  typeof compiler === 'string' ? compiler : compiler.kind === 'nvcc' ? 'NVRTC was not found (nvcc was)' : false;

/** No __global__ qualifier of the helper and no header: what NVRTC must accept. `rounds` makes texts differ. */
const unit = (symbol: string, rounds = 4): CudaUnit => ({
  symbol,
  source: `int twice(int x) { return 2 * x; }
extern "C" __global__ void __launch_bounds__(256, 1) ${symbol}(int T, int R, float *p) {
  __shared__ float tile[256];
  tile[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < ${rounds}; i++) sum += tile[(threadIdx.x + i * twice(T)) % 256];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  if (R > 0) p[threadIdx.x] = sum;
}
`,
});

describe('NVRTC', { skip }, () => {
  it('makes code for Hopper and reports its resources', async () => {
    const result = await compileCubins([unit('k_real')], { arch: 'sm_90a', settings: freshSettings() });
    const cubin = result.cubins.get('k_real');
    assert(cubin !== undefined && isCubin(cubin));
    assert(Buffer.from(cubin).includes('k_real'));
    const resources = result.resources.get('k_real');
    assert(resources !== undefined, 'the log has no line of the assembler');
    assert.equal(resources.sharedBytes, 1024);
    assert(resources.registers > 3);
    assert.match(result.compiler, /^NVRTC \d+\.\d+ \(\//);
  });

  it('compiles kernels in parallel, and each of them once', async () => {
    const settings = freshSettings();
    const units = Array.from({ length: 16 }, (_, i) => unit(`k_${i}`, i + 1));
    const cold = await compileCubins(units, { arch: 'sm_90a', settings });
    const warm = await compileCubins(units, { arch: 'sm_90a', settings });
    console.log(`16 kernels: ${cold.seconds.toFixed(2)} s cold, ${warm.seconds.toFixed(3)} s cached`);
    assert.deepEqual([cold.isCached, warm.isCached], [false, true]);
    assert.deepEqual(warm.cubins, cold.cubins);
    assert(warm.seconds < 1);
  });

  it('says which generated line does not compile', async () => {
    const { symbol, source } = unit('k_bad');
    const broken = { symbol, source: source.replace('twice(T)', 'undeclared(T)') };
    await assert.rejects(compileCubins([broken], { arch: 'sm_90a', settings: freshSettings() }), (error: unknown) => {
      assert(error instanceof UserError);
      assert.match(error.message, /k_bad\.cu:7: error: .*undeclared.*\n[^]*> +7 \| .*undeclared\(T\)/);
      return true;
    });
  });
});
