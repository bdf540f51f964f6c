/** A model on one replica as the engine sees it. */
import {
  type CallSeconds,
  type DeviceAdapters,
  type DeviceModel,
  type DraftFunction,
  StateLost,
} from '../../engine/device.js';
import type { MemoryBudget } from '../../engine/memory.js';
import { PAGE_TOKENS } from '../../engine/pages.js';
import { DRAFT, STEP } from '../../ir/function.js';
import type { Extents } from '../../ir/extents.js';
import { LAST_TOKEN_ROWS, stepSize } from '../../ir/stepping.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { classesOf, type Model, type ModelDraft } from '../../models/model/model.js';
import { ADAPTER_INPUTS } from '../../ir/adapterRows.js';
import { defined } from '../../system/defined.js';
import { NO_ADAPTER } from '../adapters/slotInputs.js';
import type { AskableExecutor, DeviceExecutor } from '../executor.js';
import { ProcessEnded } from './protocol.js';
import { stepped, Steps } from './steps.js';

export interface DeviceModelOptions {
  /** Whether its steps can take tokens that the step before has drawn. */
  readonly feeds?: boolean;
  /** Most tokens of a step in which texts wait for their next token. */
  readonly besideTokens?: number;
  readonly takesPromptsApart?: boolean;
  /** What calls that continue texts take, where that was measured. */
  readonly callSeconds?: readonly CallSeconds[] | undefined;
  /** Says how many pages it has. Absent: it keeps those that it is opened with. */
  readonly budget?: MemoryBudget | undefined;
}

/** A model whose function `step` keeps keys and values for at most `cacheTokens`. Throws where it has none. */
export function deviceModelOf(
  {
    executor,
    checkpoint,
  }: {
    readonly executor: DeviceExecutor;
    readonly checkpoint: Pick<Checkpoint, 'config'> & { readonly model?: Pick<Model, 'draft' | 'states'> };
  },
  cacheTokens: number,
  options: DeviceModelOptions = {},
): DeviceModel {
  const { feeds = false, besideTokens = Infinity, takesPromptsApart = false, callSeconds, budget } = options;
  const capacity = executor.capacity[STEP];
  if (capacity === undefined) throw new Error('The model has no function that generates.');
  const { devices: stages = 1, pieces, tokens = cacheTokens } = executor;
  // The last stage of a pipeline draws what the first one needs: its steps overlap with those of other sequences.
  const overlap = stages > 1 ? { groups: stages } : feeds ? { keptRows: LAST_TOKEN_ROWS } : {};
  const size = stepSize(capacity);
  const { tails: _, ...limits } = size;
  const maxPages = Math.floor(cacheTokens / PAGE_TOKENS);
  const mappedPages = Math.min(maxPages, Math.floor(tokens / PAGE_TOKENS));
  const { maxPositions: maxLength, vocabSize } = checkpoint.config;
  const classes = classesOf(checkpoint.config);
  const draft = executor.capacity[DRAFT] === undefined ? undefined : checkpoint.model?.draft;
  const states = checkpoint.model?.states;
  // The pages that the engine knows of are in the memory of this epoch, until it is told that they are lost.
  let { epoch } = executor;
  const steps: Pick<Steps, 'step' | 'resize'> = isAskable(executor)
    ? {
        step: (message) => executor.ask('step', message, epoch),
        resize: (rows) => executor.ask('resize', { tokens: rows }, epoch),
      }
    : new Steps(stepped(executor), {
        pages: mappedPages,
        keys: size.keys,
        keptRows: feeds ? LAST_TOKEN_ROWS : undefined,
        filters: size.filtered !== undefined,
        hasClasses: classes !== undefined,
        ...defined({
          states,
          adapters: executor.adapters && {
            ...{ slots: executor.adapters.slots, slot: NO_ADAPTER, inputs: Object.values(ADAPTER_INPUTS) },
          },
          draft: draft && { keptRows: LAST_TOKEN_ROWS, takesFeatures: draft.ahead === 1, vocabSize: draft.vocabSize },
        }),
      });
  // Paths have room to grow in the list of keys: one that is full would be laid out anew at every step.
  const keys = size.keys - (size.keys >> 3);
  return {
    limits: {
      ...limits,
      ...{ keys, ...overlap, besideTokens, takesPromptsApart },
      ...defined({ callSeconds, states: states?.rows, stateBytes: states?.bytes }),
    },
    ...defined({ draft: draft && draftFunction(draft, executor.capacity[DRAFT]!, keys) }),
    maxLength,
    vocab: size.filtered === undefined ? undefined : vocabSize,
    classes,
    maxPages,
    mappedPages,
    piecePages: pieces === undefined ? 1 : pieces.tokens / PAGE_TOKENS,
    pieceBytes: pieces?.bytes ?? 0,
    budget: (pieces?.bytes ?? 0) > 0 ? budget : undefined,
    ...defined({ adapters: isAskable(executor) ? adaptersOf(executor, () => epoch) : undefined }),
    step: (message) => steps.step(message).catch(asLost),
    resize: async (pages) => {
      const rows = await steps.resize(pages * PAGE_TOKENS).catch(asLost);
      return Math.min(maxPages, Math.floor(rows / PAGE_TOKENS));
    },
    ...(executor.opened === undefined
      ? {}
      : {
          isLost: () => executor.epoch !== epoch,
          recovered: async () => {
            await executor.opened!();
            epoch = executor.epoch;
          },
        }),
  };
}

/** The slots of a model on its device, as those of `epoch()`: another process has empty ones. */
function adaptersOf(executor: AskableExecutor, epoch: () => number | undefined): DeviceAdapters | undefined {
  const { adapters } = executor;
  if (adapters === undefined) return undefined;
  return {
    count: adapters.slots,
    rank: adapters.rank,
    load: async (slot, adapter) => {
      await executor.ask('adapter', { slot, adapter }, epoch()).catch(asLost);
    },
  };
}

function draftFunction({ name, ahead, maxPositions }: ModelDraft, capacity: Extents, keys: number): DraftFunction {
  const { tokens, rows } = stepSize(capacity);
  return { name, ahead, maxLength: maxPositions, limits: { tokens, keys, rows } };
}

const isAskable = (executor: DeviceExecutor): executor is AskableExecutor => 'ask' in executor;

function asLost(error: unknown): never {
  throw error instanceof ProcessEnded ? new StateLost(error.message, error.wasAsked) : error;
}
