/** Measuring the rival with a simulated library on a simulated device that has a clock. */
import { describe, expect, it } from 'vitest';
import { DeviceFill } from '../../../autotune/cuda/fill.js';
import { contractionOf, timeBaseline } from '../../../autotune/cuda/vendorBaseline.js';
import type { CudaAddon } from '../../../runtime/cuda/addon.js';
import type { CublasLt, CublasLtOperands, CublasLtShape } from '../../../runtime/cuda/cublasLt.js';
import { PACK_ENTRIES } from '../../../runtime/cuda/packKernels.js';
import { fakeCuda } from '../../runtime/cuda/fakeCudaAddon.js';
import { kernelAt } from '../fixture.js';
import { CAPACITY, cudaModule } from './fixture.js';

const module = cudaModule();

/** Algorithms that take this many milliseconds each; NaN refuses. */
function lab(times: readonly number[]) {
  const fills: bigint[] = [];
  const { addon: base, state } = fakeCuda({
    modules: {
      pack: {
        [PACK_ENTRIES.rows]: (_launch, _sizes, pointers) => {
          fills.push(pointers[2]!);
        },
      },
    },
  });
  let clock = 0;
  const addon: CudaAddon = {
    ...base,
    Event: class {
      private at = NaN;
      record(): void {
        this.at = clock;
      }
      synchronize(): void {
        /* all is done when it is asked for */
      }
      millisecondsSince(earlier: unknown): number {
        return this.at - (earlier as { at: number }).at;
      }
      release(): void {
        /* nothing is held */
      }
    },
  };
  const device = new addon.Device(0);
  const asked: CublasLtShape[] = [],
    operands: CublasLtOperands[] = [];
  let isReleased = false;
  const library: CublasLt = {
    version: '13.0.2',
    cuda: { major: 13, minor: 0 },
    release: () => undefined,
    contraction: (shape) => {
      asked.push(shape);
      return {
        release: () => {
          isReleased = true;
        },
        algorithms: times.map((ms, i) => ({
          name: `algorithm ${i}`,
          launch: (given) => {
            if (Number.isNaN(ms)) throw new Error('cublasLtMatmul fails with cublasStatus 15');
            operands.push(given);
            clock += ms;
          },
        })),
      };
    },
  };
  const fill = new DeviceFill(addon, device, new addon.Module(device, Buffer.from('pack')));
  return { options: { addon, device, library, fill }, asked, operands, fills, state, wasReleased: () => isReleased };
}

describe('timeRival', () => {
  it('is the best of the algorithms, over random operands in copies that exceed the L2 cache', async () => {
    const { options, asked, operands, fills, state, wasReleased } = lab([0.4, NaN, 0.25, 3]);
    const before = state.live;
    const { name, seconds } = await timeBaseline({ dtype: 'bf16', m: 300, n: 48, k: 60 }, options);
    expect(name).toBe('algorithm 2');
    expect(seconds.length).toBeGreaterThan(3);
    for (const each of seconds) expect(each).toBeCloseTo(2.5e-4, 12);
    // Rows of 16-bit numbers begin at multiples of 16 bytes.
    expect(asked).toEqual([{ dtype: 'bf16', m: 300, n: 48, k: 60, lda: 64, ldw: 64, ldc: 48 }]);
    const distinct = new Set(operands.map(({ a }) => a));
    expect(distinct.size * (300 * 64 + 48 * 64 + 300 * 48) * 2).toBeGreaterThan(options.device.info.l2Bytes);
    expect([...distinct].every((address) => fills.includes(address))).toBe(true);
    expect(wasReleased()).toBe(true);
    expect(state.live).toBe(before);
  });

  it('times the best algorithm again as the caller wants it', async () => {
    const { options } = lab([0.4, 0.25]);
    const tell = async (time: () => Promise<readonly number[]>): Promise<readonly number[]> =>
      (await time()).map((each) => 2 * each);
    const { name, seconds } = await timeBaseline({ dtype: 'bf16', m: 300, n: 48, k: 60 }, options, tell);
    expect(name).toBe('algorithm 1');
    for (const each of seconds) expect(each).toBeCloseTo(5e-4, 12);
  });

  it('fails if no algorithm works, and then holds no memory', async () => {
    const { options, state } = lab([NaN]);
    const before = state.live;
    await expect(timeBaseline({ dtype: 'f16', m: 8, n: 8, k: 8 }, options)).rejects.toThrow('cublasStatus 15');
    expect(state.live).toBe(before);
  });
});

describe('contractionOf', () => {
  it('covers all columns of a kernel side by side, gate and up both counted', () => {
    expect(contractionOf(kernelAt(module, 'layers.0.ffn.gate_up'), module, CAPACITY)).toEqual({
      dtype: 'bf16',
      m: 256,
      n: 320,
      k: 64,
    });
    expect(contractionOf(kernelAt(module, 'layers.0.attention.qkv'), module, CAPACITY)).toEqual({
      dtype: 'bf16',
      m: 256,
      n: 128,
      k: 64,
    });
    expect(contractionOf(kernelAt(module, 'prepare'), module, CAPACITY)).toBeUndefined();
  });
});
