/** GPTQ's order of work: samples go through the model group by group, and every group is quantized as they pass. */
import { UserError } from '../../errors.js';
import type { Graph } from '../../ir/graph/graph.js';
import type { NativePool } from '../../runtime/nativeObjects.js';
import { machineBytes } from '../../runtime/cpu/memoryUse.js';
import { hessianBytes, LayerHessian } from '../../runtime/hessian.js';
import { bytes } from '../../system/format.js';
import type { Ui } from '../requests.js';
import { Activations, valueBytes } from './activations.js';
import { cutGraph } from './cutGraph.js';
import type { InputGroup } from './matrices.js';
import { compilePieces } from './pieces.js';
import type { Quantizer } from './quantizer.js';

/** Tokens of a call, where samples are shorter. */
const CALL_TOKENS = 2048;
/** Share of the memory that activations and sums of products may take; the rest is for kernels and weights. */
const MEMORY_SHARE = 0.5;
/** Share of the time of a group that its activations take, about. */
const CALLS_SHARE = 0.4;

/** Throws UserError where activations and sums of products take more memory than there is. */
function requireRoom(activations: number, groups: readonly InputGroup[]): void {
  const squares = Math.max(...groups.flatMap(({ inputs }) => inputs.map(({ k }) => hessianBytes(k))));
  const needed = activations + squares;
  const room = MEMORY_SHARE * machineBytes();
  if (needed > room)
    throw new UserError(
      `the inputs of layers take ${bytes(activations)} and their products ${bytes(squares)}; there is room for ` +
        bytes(room),
      'take fewer or shorter samples, or a machine with more memory',
    );
}

export interface CalibrationWork {
  readonly threads: number;
  readonly pool: NativePool;
  readonly signal?: AbortSignal | undefined;
}

/** Quantizes the groups of `graph`. Throws UserError where there is too little memory. */
export async function calibrate(
  work: Quantizer,
  graph: Graph,
  groups: readonly InputGroup[],
  samples: readonly Int32Array[],
  { threads, pool, signal }: CalibrationWork,
  ui: Ui,
): Promise<void> {
  const length = samples[0]!.length;
  const perCall = Math.max(1, Math.floor(CALL_TOKENS / length)) * length;
  const pieces = cutGraph(
    graph,
    groups.map(({ value }) => value),
  );
  const activations = new Activations(samples, perCall);
  requireRoom(valueBytes(pieces, activations.tokens), groups);
  const compiled = await compilePieces(pieces, { tokens: perCall, longest: length, threads }, ui);
  const total = groups.reduce((sum, { inputs }) => sum + inputs.flatMap((each) => each.matrices).length, 0);
  ui.phase('quantize', `${activations.tokens} tokens in samples of ${length}`);
  for (const [i, { value, inputs }] of groups.entries()) {
    const show = (share: number): void =>
      ui.step((i + share) / groups.length, { done: work.reports.length, total, unit: 'matrices' });
    const executor = await compiled.open(i, work.tensors);
    let done = 0;
    try {
      await activations.run(pieces[i]!, executor, (tokens) => {
        signal?.throwIfAborted();
        done += tokens;
        show((CALLS_SHARE * done) / activations.tokens);
      });
    } finally {
      await executor.close();
    }
    for (const [at, own] of inputs.entries()) {
      const hessian = new LayerHessian(pool, own.k);
      try {
        for (const columns of activations.columns(value, own.first, own.k)) {
          await hessian.add(columns);
          signal?.throwIfAborted();
        }
        await work.calibrated(own, hessian);
      } finally {
        hessian.release();
      }
      signal?.throwIfAborted();
      show(CALLS_SHARE + ((1 - CALLS_SHARE) * (at + 1)) / inputs.length);
    }
  }
}
