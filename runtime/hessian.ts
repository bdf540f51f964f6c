/**
 * The inputs of a layer as GPTQ (arXiv:2210.17323) weighs errors by them: the sum H of their products, and what
 * follows from it. The same numbers on every machine, whatever the threads.
 */
import { roundUp } from '../ir/types.js';
import { loadAddon } from './addon.js';
import type { CodedRows, NativeMemory, NativePool } from './native.js';

/** How codes are chosen. */
export interface CodeSettings {
  readonly bits: 4 | 8;
  /** Columns that share a scale; all of them, or a divisor of 128 and of them. */
  readonly group: number;
  readonly isSymmetric: boolean;
}

/** Rows and columns of a matrix in memory, as hessianStride of runtime/native/hessian.h has it. */
const strideOf = (k: number): number => roundUp(k + 8, 16);

/** Bytes of the two matrices of a layer with k inputs. */
export const hessianBytes = (k: number): number => 2 * 8 * strideOf(k) ** 2;

/** Share of the mean diagonal that is added to the diagonal, as in the paper; more where that is too little. */
const DAMPING = 0.01;
const MAX_DAMPING = 1;

export const inOrder = (k: number): Int32Array => Int32Array.from({ length: k }, (_, i) => i);

const isNotPositive = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === 'NOT_POSITIVE';

/** Codes of weights [rows, k], each to the nearest. */
export const roundRows = (pool: NativePool, weights: Float32Array, k: number, s: CodeSettings): Promise<CodedRows> =>
  loadAddon().codeRows(pool, { k, weights, order: inOrder(k), ...s });

/** What is known of a layer's inputs once all of them were added. */
export interface FactoredHessian {
  /** Places of columns in the order of quantization: those with the largest inputs first, or as stored. */
  readonly order: Int32Array;
  /** Σ over rows of v·H·vᵀ for values [rows, k], with the damped H. */
  norm(values: Float32Array): Promise<number>;
  /** From now on rows can be coded, and norms no more. */
  invert(): Promise<void>;
  /** Codes of weights [rows, k] by GPTQ. */
  code(weights: Float32Array, settings: CodeSettings): Promise<CodedRows>;
  release(): void;
}

export class LayerHessian {
  readonly k: number;
  private readonly pool: NativePool;
  private readonly memory: NativeMemory;

  constructor(pool: NativePool, k: number) {
    this.k = k;
    this.pool = pool;
    this.memory = new (loadAddon().Memory)(8 * strideOf(k) ** 2);
  }

  /** Adds inputs [rows, k]. */
  async add(inputs: Float32Array): Promise<void> {
    await loadAddon().addHessian(this.pool, { k: this.k, hessian: this.memory, inputs });
  }

  /** `byActivation`: the columns with the largest inputs come first. Frees the sums. */
  async factor(byActivation: boolean): Promise<FactoredHessian> {
    const { k, pool, memory } = this;
    const addon = loadAddon();
    const order = byActivation ? this.largestFirst() : inOrder(k);
    const factor = new addon.Memory(8 * strideOf(k) ** 2);
    for (let damping = DAMPING; ; damping *= 10) {
      try {
        await addon.factorHessian(pool, { k, hessian: memory, factor, order, damping });
        break;
      } catch (error) {
        if (isNotPositive(error) && damping < MAX_DAMPING) continue;
        factor.release();
        throw error;
      }
    }
    memory.release();
    return {
      order,
      norm: (values) => addon.weightedNorm(pool, { k, factor, order, values }),
      invert: async () => {
        await addon.invertFactor(pool, { k, factor });
      },
      code: (weights, settings) => addon.codeRows(pool, { k, weights, order, ...settings, inverse: factor }),
      release: () => {
        factor.release();
      },
    };
  }

  release(): void {
    this.memory.release();
  }

  /** Ties stay in order. */
  private largestFirst(): Int32Array {
    const stride = strideOf(this.k);
    const diagonal = Float64Array.from(
      { length: this.k },
      (_, i) => new Float64Array(this.memory.read(8 * i * (stride + 1), 8))[0]!,
    );
    return inOrder(this.k).sort((a, b) => diagonal[b]! - diagonal[a]! || a - b);
  }
}
