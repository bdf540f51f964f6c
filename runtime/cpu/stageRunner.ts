/** Calls through the stages of a CPU: threads that work at once, in the order that StageFlow keeps. */
import { defined } from '../../system/defined.js';
import { type DeviceSpan, snapshotOf } from '../call.js';
import type { ProgramResult } from '../native.js';
import type { ReservedStates, StatePieces } from '../reservedStates.js';
import { floatWrites, nameOf } from '../runtimePlan.js';
import type { NonFinitePlace, Readiness, StageAnswer, StageCall, StageRunner } from '../stageRunner.js';
import type { SlotWrite } from '../weightPlan.js';
import type { CpuStage } from './stage.js';

/** Number of calls that keep one stage busy: one is computed while another waits. */
const IN_FLIGHT_A_STAGE = 2;

const now = (): number => performance.timeOrigin + performance.now();

export class CpuStages implements StageRunner {
  readonly inFlight: number;
  readonly readiness?: Readiness;
  private readonly stages: readonly CpuStage[];
  private readonly flow: StageFlow;
  private readonly states: ReservedStates;
  private readonly releaseAll: () => Promise<void>;

  /**
   * `release` gives back the stages and the resources that they share. Without `readiness`, every bucket is bound on
   * every stage.
   */
  constructor(
    stages: readonly CpuStage[],
    { arenas, states }: { readonly arenas: number; readonly states: ReservedStates },
    release: () => Promise<void>,
    readiness?: Readiness,
  ) {
    if (readiness !== undefined) this.readiness = readiness;
    this.states = states;
    this.stages = stages;
    this.inFlight = IN_FLIGHT_A_STAGE * stages.length;
    this.flow = new StageFlow(stages.length, arenas);
    this.releaseAll = release;
  }

  get tokens(): number {
    return this.states.tokens;
  }

  get pieces(): StatePieces {
    return this.states.pieces;
  }

  resize(tokens: number): Promise<number> {
    return this.states.resize(tokens);
  }

  async writeSlots(writes: readonly SlotWrite[]): Promise<void> {
    for (const stage of this.stages) await stage.writeSlots(writes);
  }

  async run(given: StageCall): Promise<StageAnswer> {
    // Stages read inputs when their turn comes.
    const call = { ...given, inputs: snapshotOf(given.inputs) };
    const results: ProgramResult[] = [];
    const spans: DeviceSpan[] = [];
    await this.flow.run({
      compute: async (device, arena) => {
        const begin = now();
        results.push(await this.stages[device]!.run(arena, call));
        spans.push({ device, kind: 'compute', begin, end: now() });
      },
      send: (device, arena) => {
        const begin = now();
        this.stages[device]!.sendTo(this.stages[device + 1]!, arena, call);
        spans.push({ device, kind: 'copy', begin, end: now() });
      },
    });
    const nonFinite = this.firstNonFinite(call, results);
    return {
      outputs: results.at(-1)!.outputs,
      spans,
      launchNanoseconds: results.flatMap(({ launchNs }) => [...(launchNs ?? [])]),
      ...defined({ nonFinite }),
    };
  }

  stop(): void {
    for (const stage of this.stages) stage.stop();
  }

  async release(): Promise<void> {
    await this.flow.idle();
    await this.releaseAll();
  }

  private firstNonFinite({ fn }: StageCall, results: readonly ProgramResult[]): NonFinitePlace | undefined {
    const stage = results.findIndex(({ nonFinite }) => nonFinite !== undefined);
    const found = results[stage]?.nonFinite;
    if (found === undefined) return undefined;
    const launch = this.stages[stage]!.ranges[nameOf(fn)]!.first + found.launch;
    const { buffer } = floatWrites(fn)[launch]![found.write]!;
    return { launch, buffer, row: found.row, column: found.column };
  }
}

// The order in which micro-batches flow through the stages of a pipeline: the same rules as events keep between
// GPUs.

/** The work for a micro-batch, stage by stage. A rejection ends that micro-batch and no other. */
export interface FlowSteps {
  /** Runs the stage's launches in one of its arenas. */
  compute(stage: number, arena: number): Promise<void>;
  /** Copies what the next stage reads into the same arena there. */
  send(stage: number, arena: number): void;
}

const settled = (work: Promise<unknown>): Promise<void> =>
  work.then(
    () => undefined,
    () => undefined,
  );

/**
 * Micro-batches take arenas in turn. A stage computes one at a time, in the order of call; a micro-batch is sent on
 * when the next stage is over with what that arena held there, its own sending included, and computed in an arena when
 * what that held was sent on. So two stages work at once, and one receives while it computes.
 */
export class StageFlow {
  private readonly stages: number;
  private readonly arenas: number;
  /** For each stage: settles when the last requested micro-batch is computed. */
  private readonly computed: Promise<void>[];
  /** [stage][arena]: settles when the arena's contents are no longer needed. */
  private readonly free: Promise<void>[][];
  private next = 0;

  constructor(stages: number, arenas: number) {
    this.stages = stages;
    this.arenas = arenas;
    this.computed = Array.from({ length: stages }, () => Promise.resolve());
    this.free = this.computed.map(() => Array.from({ length: arenas }, () => Promise.resolve()));
  }

  /** Settles when the last stage has computed the micro-batch, or one of its steps failed. */
  run(steps: FlowSteps): Promise<void> {
    const arena = this.next++ % this.arenas;
    let arrived = Promise.resolve();
    for (let stage = 0; stage < this.stages; stage++) {
      const here = arrived;
      const turn = Promise.all([this.computed[stage], this.free[stage]![arena]]);
      const computed = here.then(() => turn).then(() => steps.compute(stage, arena));
      // A micro-batch that failed earlier must not let a later one overtake those ahead of it.
      this.computed[stage] = Promise.all([turn, settled(computed)]).then(() => undefined);
      const room = this.free[stage + 1]?.[arena];
      arrived = room === undefined ? computed : computed.then(() => room).then(() => steps.send(stage, arena));
      this.free[stage]![arena] = Promise.all([this.computed[stage], settled(arrived)]).then(() => undefined);
    }
    return arrived;
  }

  /** Settles when all requested work is done. */
  idle(): Promise<void> {
    return Promise.all([...this.computed, ...this.free.flat()]).then(() => undefined);
  }
}
