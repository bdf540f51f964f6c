/** Steps of a model in the process that has its devices: messages in, calls of its functions, answers out. */
import type { PageCopies, StepAnswer, StepMessage } from '../../engine/device.js';
import { PAGE_TOKENS } from '../../engine/pages.js';
import { COPY, DRAFT, type InputDecl, STEP } from '../../ir/function.js';
import type { Plan } from '../../ir/plan.js';
import { cacheTokensOf, COPIED_ROWS, LAST_TOKEN_ROWS, STEP_STATES, stepSize } from '../../ir/stepping.js';
import { type CallArrays, type CallResult, snapshotOf } from '../../runtime/call.js';
import { defined } from '../../system/defined.js';
import { NO_ADAPTER } from '../adapters/slotInputs.js';
import type { DeviceExecutor } from '../executor.js';
import type { StateShape } from './stateInputs.js';
import { SequenceTable, type StepCall, type TableShape } from './sequenceTable.js';

/** What of an executor steps need. */
export interface SteppedExecutor extends Pick<DeviceExecutor, 'capacity' | 'resize'> {
  readonly callInTurn: NonNullable<DeviceExecutor['callInTurn']>;
}

/**
 * The table for the function `step` of a plan. `slot`: that of all tokens of messages that name none. Throws where it
 * has no such function.
 */
export function tableShape(
  plan: Pick<Plan<unknown>, 'functions' | 'states'>,
  { capacity, tokens = cacheTokensOf({ plan }) ?? 0 }: Pick<DeviceExecutor, 'capacity' | 'tokens'>,
  slot = NO_ADAPTER,
): TableShape {
  const size = capacity[STEP];
  const inputs = plan.functions.find(({ interface: { name } }) => name === STEP)?.interface.inputs;
  if (inputs === undefined || size === undefined) throw new Error('The model has no function that generates.');
  const takes = (input: string): boolean => inputs.some(({ name }) => name === input);
  const draft = plan.functions.find(({ interface: { name } }) => name === DRAFT)?.interface.inputs;
  const token = draft?.find(({ name }) => name === 'tokens')?.role;
  return {
    pages: Math.floor(tokens / PAGE_TOKENS),
    keys: stepSize(size).keys,
    keptRows: takes('isFed') ? LAST_TOKEN_ROWS : undefined,
    filters: takes('topK'),
    hasClasses: !takes('target'),
    ...defined({ adapters: slotInputs(inputs, slot), states: stateShapeOf(plan) }),
    ...defined({
      draft: draft && {
        keptRows: LAST_TOKEN_ROWS,
        takesFeatures: draft.some(({ name }) => name === 'feature'),
        vocabSize: token?.kind === 'token' ? token.vocab : undefined,
      },
    }),
  };
}

/** Rows of states that the function `step` of a plan reads and writes; undefined if there are none. */
export function stateShapeOf({
  functions,
  states,
}: Pick<Plan<unknown>, 'functions' | 'states'>): StateShape | undefined {
  const { inputs = [] } = functions.find(({ interface: { name } }) => name === STEP)?.interface ?? {};
  const rowsOf = (input: string): number => {
    const role = inputs.find(({ name }) => name === input)?.role;
    return (role?.kind === 'slot' && states.find(({ name }) => name === role.state)?.rows) || 0;
  };
  const tails = inputs.filter(({ name }) => /^tailBack\d+$/.test(name)).length;
  const [ofStates, ofTails] = [rowsOf(STEP_STATES.stateTo), rowsOf(STEP_STATES.tailSlot)];
  if (ofStates === 0 && ofTails === 0) return undefined;
  return { rows: ofStates === 0 ? ofTails / tails : ofStates, tails, hasScans: ofStates > 0 };
}

/** The inputs of slots that a function has; undefined if it has none. */
function slotInputs(inputs: readonly InputDecl[], slot: number): TableShape['adapters'] {
  const own = inputs.flatMap(({ name, role }) => (role.kind === 'adapter' ? [{ name, slots: role.slots }] : []));
  const [first] = own;
  return first && { slots: first.slots, slot, inputs: own.map(({ name }) => name) };
}

/** How an executor of this process takes steps: one that makes no inputs in turn is given copies at once. */
export function stepped(
  executor: Pick<DeviceExecutor, 'call' | 'callInTurn' | 'capacity' | 'resize'>,
): SteppedExecutor {
  return {
    capacity: executor.capacity,
    callInTurn: (name, make) =>
      executor.callInTurn === undefined ? executor.call(name, snapshotOf(make())) : executor.callInTurn(name, make),
    ...(executor.resize === undefined ? {} : { resize: (tokens) => executor.resize!(tokens) }),
  };
}

export class Steps {
  private readonly executor: SteppedExecutor;
  private readonly table: SequenceTable;
  /** Most pages of a call of `copy`; 0: there is none. */
  private readonly copiedPages: number;
  /** Steps that were asked for, and that have taken their turn. */
  private asked = 0;
  private taken = 0;
  /** Numbers of pages, each of which counts from a step on. */
  private readonly sizes: { readonly from: number; readonly pages: number }[] = [];

  constructor(executor: SteppedExecutor, shape: TableShape) {
    this.executor = executor;
    this.copiedPages = Math.floor((executor.capacity[COPY]?.[COPIED_ROWS] ?? 0) / PAGE_TOKENS);
    this.table = new SequenceTable(shape);
  }

  /** Rejects with RangeError where the message is refused, and as calls do. */
  async step(message: StepMessage): Promise<StepAnswer> {
    this.asked++;
    let taken: StepCall | Error | undefined;
    const take = (): StepCall => {
      taken ??= this.take(message);
      if (taken instanceof Error) throw taken;
      return taken;
    };
    const { executor, copiedPages: most } = this;
    if (message.isDraft === true) {
      if (executor.capacity[DRAFT] === undefined) throw new Error('The model has no function that drafts.');
      return draftAnswer(await executor.callInTurn(DRAFT, () => ({ ...take().inputs })));
    }
    const copied = message.copies?.from.length ?? 0;
    if (copied > 0 && most === 0) throw new Error('The model has no function that copies.');
    const copying: Promise<CallResult>[] = [];
    for (let at = 0; at < copied; at += most)
      copying.push(executor.callInTurn(COPY, () => copyInputs(take().copies!, at, at + most)));
    const stepping = executor.callInTurn(STEP, () => ({ ...take().inputs }));
    // All are over before anybody is told of one.
    await Promise.allSettled([...copying, stepping]);
    await Promise.all(copying);
    return stepAnswer(await stepping);
  }

  /**
   * Has memory behind so many rows, as DeviceExecutor.resize says. Sequences that hold pages without memory are
   * forgotten.
   */
  async resize(tokens: number): Promise<number> {
    const { executor, asked } = this;
    if (executor.resize === undefined) throw new Error('The memory of this model does not change.');
    const pages = Math.floor(tokens / PAGE_TOKENS);
    // Steps that were asked for before may still name the pages that go; lists of later ones must not.
    if (pages < this.table.pages) this.sizes.push({ from: asked, pages });
    const mapped = await executor.resize(tokens);
    this.sizes.push({ from: this.asked, pages: Math.floor(mapped / PAGE_TOKENS) });
    return mapped;
  }

  private take(message: StepMessage): StepCall | Error {
    while (this.sizes.length > 0 && this.sizes[0]!.from <= this.taken) this.table.resize(this.sizes.shift()!.pages);
    this.taken++;
    try {
      return this.table.apply(message);
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }
}

/** The rows of the copies from `begin` to before `end`, for the function `copy`. */
function copyInputs({ from, to, rows }: PageCopies, begin: number, end: number): CallArrays {
  const rowsOf = (pages: Int32Array): Int32Array =>
    Int32Array.from(
      [...pages.subarray(begin, end)].flatMap((page, i) =>
        Array.from({ length: rows[begin + i]! }, (_, at) => page * PAGE_TOKENS + at),
      ),
    );
  return { from: rowsOf(from), to: rowsOf(to) };
}

const NO_FLOATS = new Float32Array(0);
const NONE = new Int32Array(0);

/** The outputs of the function `draft`. A row that gave nothing finite has drawn −1. */
function draftAnswer({ outputs: { nextToken, nextTokenLogProb } }: Pick<CallResult, 'outputs'>): StepAnswer {
  if (!(nextToken instanceof Int32Array && nextTokenLogProb instanceof Float32Array))
    throw new Error('The function draft draws no tokens.');
  return {
    ...{ logProb: NO_FLOATS, isArgmax: NONE, nextTokenLogProb },
    nextToken: nextToken.map((token, row) => (Number.isFinite(nextTokenLogProb[row]) ? token : -1)),
  };
}

/** The outputs of the function `step`. Throws where one is missing. */
function stepAnswer({ outputs }: Pick<CallResult, 'outputs'>): StepAnswer {
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
  const hidden = 'hidden' in outputs ? { hidden: f32('hidden') } : {};
  if ('classLogits' in outputs)
    return {
      ...{ logProb: NO_FLOATS, isArgmax: NONE, nextToken: NONE, nextTokenLogProb: NO_FLOATS },
      classLogits: f32('classLogits'),
      ...hidden,
    };
  return {
    logProb: f32('logProb'),
    isArgmax: i32('isArgmax'),
    nextToken: i32('nextToken'),
    nextTokenLogProb: f32('nextTokenLogProb'),
    ...hidden,
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
