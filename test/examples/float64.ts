/** The demo model in float64: kernels without the rounding of any fusion, run by the interpreter of kernel IR. Slow. */
import { closeSync, openSync, readSync } from 'node:fs';
import { buildGraph } from '../../driver/functions.js';
import type { MicroBatch, ScoredRows, Scorer } from '../../evaluate/scorer.js';
import type { KernelModule } from '../../ir/kernel.js';
import { interpretModule, logicalWeight, type RawTensor } from '../../ir/kernelInterpreter.js';
import type { DType } from '../../ir/types.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';

const NUMERICS: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };

/** Every tensor of a checkpoint in bf16 or f32, exactly. */
export function readTensors({ tensors }: Checkpoint): Map<string, RawTensor> {
  return new Map(
    [...tensors.values()].map((tensor): [string, RawTensor] => {
      if (tensor.kind !== 'file' || (tensor.format !== 'bf16' && tensor.format !== 'f32'))
        throw new Error(`${tensor.name} is stored neither in bf16 nor in f32`);
      const bytes = Buffer.alloc(tensor.byteLength);
      const file = openSync(tensor.file, 'r');
      try {
        if (readSync(file, bytes, 0, bytes.length, tensor.offset) !== bytes.length)
          throw new Error(`${tensor.file} is cut off`);
      } finally {
        closeSync(file);
      }
      const wide =
        tensor.format === 'f32'
          ? Float32Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readFloatLE(4 * i))
          : new Float32Array(
              Uint32Array.from({ length: bytes.length / 2 }, (_, i) => bytes.readUInt16LE(2 * i) << 16).buffer,
            );
      const columns = tensor.shape.at(-1)!;
      return [tensor.name, { rows: wide.length / columns, columns, data: Float64Array.from(wide) }];
    }),
  );
}

/** Scores micro-batches of at most `maxTokens` in float64. Answers are passed on as f32. */
export class Float64Scorer implements Scorer {
  readonly maxTokens: number;
  readonly maxRows: number;
  readonly maxLength: number;
  readonly inFlight = 1;
  readonly replicas = 1;
  readonly devices = 1;
  private readonly module: KernelModule;
  private readonly weights: ReadonlyMap<string, Float64Array>;

  constructor(checkpoint: Checkpoint, maxTokens = 256) {
    [this.maxTokens, this.maxRows, this.maxLength] = [maxTokens, maxTokens, checkpoint.config.maxPositions];
    this.module = lower(optimize(buildGraph(checkpoint), NUMERICS), NUMERICS);
    const tensors = new Map([
      ...readTensors(checkpoint),
      ...(this.module.constants ?? []).map(({ name, values }): [string, RawTensor] => [
        name,
        { rows: values.length, columns: 1, data: Float64Array.from(values) },
      ]),
    ]);
    this.weights = new Map(this.module.weights.map((weight) => [weight.name, logicalWeight(weight, tensors, false)]));
  }

  cost(tokens: number): number {
    return tokens;
  }

  score({ tokens, position, subtreeEnd, row, target }: MicroBatch): Promise<ScoredRows> {
    const inputs = { tokens, position, subtree_end: subtreeEnd, row, target };
    const values = interpretModule(this.module, {
      sizes: { T: tokens.length, R: row.length },
      weights: this.weights,
      buffers: new Map(Object.entries(inputs).map(([name, list]) => [name, Float64Array.from(list)])),
    });
    const output = (dtype: DType): Float64Array =>
      values.get(this.module.buffers.find((buffer) => buffer.space === 'output' && buffer.dtype === dtype)!.name)!;
    return Promise.resolve({ logProb: Float32Array.from(output('f32')), isArgmax: Int32Array.from(output('i32')) });
  }
}
