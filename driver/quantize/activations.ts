/** The inputs of matrices: samples go through the pieces of a model, one piece after another, on our own kernels. */
import { rowElements } from '../../runtime/call.js';
import type { Value } from '../../ir/graph/graph.js';
import type { Executor } from '../executor.js';
import type { Piece } from './cutGraph.js';

/** Samples that go through a piece in one call, each a path of its own, and the values that pieces left for them. */
interface Batch {
  readonly tokens: Int32Array;
  readonly position: Int32Array;
  readonly subtreeEnd: Int32Array;
  readonly values: Map<Value, Float32Array>;
}

function batchOf(samples: readonly Int32Array[]): Batch {
  const total = samples.reduce((sum, { length }) => sum + length, 0);
  const [tokens, position, subtreeEnd] = [0, 1, 2].map(() => new Int32Array(total)) as [
    Int32Array,
    Int32Array,
    Int32Array,
  ];
  let at = 0;
  for (const sample of samples) {
    tokens.set(sample, at);
    for (let i = 0; i < sample.length; i++) position[at + i] = i;
    subtreeEnd.fill(at + sample.length, at, at + sample.length);
    at += sample.length;
  }
  return { tokens, position, subtreeEnd, values: new Map() };
}

/** Bytes of a value for `tokens` tokens. */
const bytesOf = (value: Value, tokens: number): number => 4 * tokens * rowElements(value.type, {});

/** Most bytes that values of all samples take between two pieces. */
export function valueBytes(pieces: readonly Piece[], tokens: number): number {
  const live = new Set<Value>();
  let most = 0;
  for (const { gives, drops } of pieces) {
    for (const value of gives.values()) live.add(value);
    most = Math.max(
      most,
      [...live].reduce((sum, value) => sum + bytesOf(value, tokens), 0),
    );
    for (const value of drops) live.delete(value);
  }
  return most;
}

export class Activations {
  /** Tokens of all samples. */
  readonly tokens: number;
  private readonly batches: readonly Batch[];

  /** `perCall`: tokens that a call takes. */
  constructor(samples: readonly Int32Array[], perCall: number) {
    const batches: Int32Array[][] = [];
    let room = 0;
    for (const sample of samples) {
      if (room < sample.length) {
        batches.push([]);
        room = perCall;
      }
      batches.at(-1)!.push(sample);
      room -= sample.length;
    }
    this.batches = batches.map(batchOf);
    this.tokens = samples.reduce((sum, { length }) => sum + length, 0);
  }

  /** Calls the piece for every batch; `onBatch` is called after each, with its tokens. */
  async run(
    { graph, takes, gives, drops }: Piece,
    executor: Executor,
    onBatch: (tokens: number) => void,
  ): Promise<void> {
    for (const { tokens, position, subtreeEnd, values } of this.batches) {
      const own: Record<string, Int32Array> = { tokens, position, subtreeEnd };
      const inputs = graph.params.map(({ name }) => {
        const value = takes.get(name);
        const data = value === undefined ? own[name] : values.get(value);
        if (data === undefined) throw new Error(`${graph.name} takes ${name}, which nothing gives`);
        return [name, data] as const;
      });
      const { outputs } = await executor.call(graph.name, Object.fromEntries(inputs));
      for (const value of drops) values.delete(value);
      for (const [name, value] of gives) values.set(value, outputs[name] as Float32Array);
      onBatch(tokens.length);
    }
  }

  /** Columns of a value for each batch: `k` from `first` on. */
  *columns(value: Value, first: number, k: number): Generator<Float32Array> {
    const width = rowElements(value.type, {});
    for (const { values } of this.batches) {
      const data = values.get(value)!;
      if (width === k) {
        yield data;
        continue;
      }
      const rows = data.length / width;
      const part = new Float32Array(rows * k);
      for (let row = 0; row < rows; row++)
        part.set(data.subarray(row * width + first, row * width + first + k), row * k);
      yield part;
    }
  }
}
