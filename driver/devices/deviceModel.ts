/** A model on one replica as the engine sees it: its executor behind a table of sequences. */
import { type DeviceModel, type PageCopies, StateLost, type StepAnswer } from '../../engine/device.js';
import { PAGE_TOKENS } from '../../engine/pages.js';
import { COPY, STEP } from '../../ir/function.js';
import { COPIED_ROWS, LAST_TOKEN_ROWS, stepSize } from '../../ir/stepping.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { classesOf } from '../../models/model/model.js';
import type { CallArrays, CallResult } from '../../runtime/call.js';
import { defined } from '../../system/defined.js';
import type { DeviceExecutor } from '../executor.js';
import { ProcessEnded } from './protocol.js';
import { SequenceTable } from './sequenceTable.js';

export interface DeviceModelOptions {
  /** Whether its steps can take tokens that the step before has drawn. */
  readonly feeds?: boolean;
  /** Most tokens of a step in which texts wait for their next token. */
  readonly besideTokens?: number;
}

/** A model whose function `step` keeps keys and values for `cacheTokens`. Throws where it has no such function. */
export function deviceModelOf(
  { executor, checkpoint }: { readonly executor: DeviceExecutor; readonly checkpoint: Pick<Checkpoint, 'config'> },
  cacheTokens: number,
  { feeds = false, besideTokens = Infinity }: DeviceModelOptions = {},
): DeviceModel {
  const capacity = executor.capacity[STEP];
  if (capacity === undefined) throw new Error('The model has no function that generates.');
  const { devices: stages = 1 } = executor;
  // The last stage of a pipeline draws what the first one needs: its steps overlap with those of other sequences.
  const overlap = stages > 1 ? { groups: stages } : feeds ? { keptRows: LAST_TOKEN_ROWS } : {};
  const size = stepSize(capacity);
  const pages = Math.floor(cacheTokens / PAGE_TOKENS);
  const { maxPositions: maxLength, vocabSize } = checkpoint.config;
  const classes = classesOf(checkpoint.config);
  const shape = {
    keys: size.keys,
    maxLength,
    filters: size.filtered !== undefined,
    keptRows: feeds ? (overlap.keptRows ?? 0) : undefined,
    hasClasses: classes !== undefined,
  };
  let table = new SequenceTable({ ...shape, pages });
  // The pages that the engine knows of are in the memory of this epoch, until it is told that they are lost.
  let { epoch } = executor;
  return {
    limits: { ...size, ...overlap, besideTokens },
    maxLength,
    vocab: size.filtered === undefined ? undefined : vocabSize,
    classes,
    maxPages: pages,
    mappedPages: pages,
    piecePages: 1,
    pieceBytes: 0,
    step: async (message) => {
      const { inputs, copies } = table.apply(message);
      try {
        // Calls are executed in the order in which they are made.
        const copied = copyCalls(copies, executor.capacity).map((call) => executor.call(COPY, call, epoch));
        const answer = executor.call(STEP, { ...inputs, key: inputs.key.slice() }, epoch);
        await Promise.all([...copied, answer]);
        return stepAnswer(await answer);
      } catch (error) {
        throw error instanceof ProcessEnded ? new StateLost(error.message, error.wasAsked) : error;
      }
    },
    resize: (wanted) => {
      const mapped = Math.min(wanted, pages);
      table.resize(mapped);
      return Promise.resolve(mapped);
    },
    ...(executor.opened === undefined
      ? {}
      : {
          isLost: () => executor.epoch !== epoch,
          recovered: async () => {
            await executor.opened!();
            epoch = executor.epoch;
            table = new SequenceTable({ ...shape, pages });
          },
        }),
  };
}

/** Copies of pages as calls of the function `copy`, each of as many rows as it takes at most. */
function copyCalls(copies: PageCopies | undefined, capacity: DeviceExecutor['capacity']): readonly CallArrays[] {
  if (copies === undefined) return [];
  const most = capacity[COPY]?.[COPIED_ROWS];
  if (most === undefined) throw new Error('The model has no function that copies.');
  const rowsOf = (pages: Int32Array): number[] =>
    [...pages].flatMap((page, i) => Array.from({ length: copies.rows[i]! }, (_, row) => page * PAGE_TOKENS + row));
  const [from, to] = [Int32Array.from(rowsOf(copies.from)), Int32Array.from(rowsOf(copies.to))];
  return Array.from({ length: Math.ceil(from.length / most) }, (_, i) => ({
    from: from.slice(i * most, (i + 1) * most),
    to: to.slice(i * most, (i + 1) * most),
  }));
}

const NO_FLOATS = new Float32Array(0);
const NONE = new Int32Array(0);

/** The outputs of the function `step`. Throws where one is missing. */
export function stepAnswer({ outputs }: Pick<CallResult, 'outputs'>): StepAnswer {
  const f32 = (name: string): Float32Array => {
    const found = outputs[name];
    if (found instanceof Float32Array) return found;
    throw new Error(`The function step gives no numbers ${name}.`);
  };
  const i32 = (name: string): Int32Array => {
    const found = outputs[name];
    if (found instanceof Int32Array) return found;
    throw new Error(`The function step gives no whole numbers ${name}.`);
  };
  if ('classLogits' in outputs)
    return {
      ...{ logProb: NO_FLOATS, isArgmax: NONE, nextToken: NONE, nextTokenLogProb: NO_FLOATS },
      classLogits: f32('classLogits'),
    };
  return {
    logProb: f32('logProb'),
    isArgmax: i32('isArgmax'),
    nextToken: i32('nextToken'),
    nextTokenLogProb: f32('nextTokenLogProb'),
    ...defined({
      filtered: outputs['filteredToken'] && {
        token: i32('filteredToken'),
        logProb: f32('filteredTokenLogProb'),
        topTokens: i32('topTokens'),
        topLogProbs: f32('topLogProbs'),
      },
    }),
  };
}
