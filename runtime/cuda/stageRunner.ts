/** How a call goes through the devices of an executor: one device, or a pipeline of them. */
import { extentIn } from '../../ir/extents.js';
import { sizesOf } from '../bindPorts.js';
import type { DeviceSpan } from '../call.js';
import type { ReservedStates, StatePieces } from '../reservedStates.js';
import { type Crossing, crossingsOf, nameOf, type RuntimePlan } from '../runtimePlan.js';
import type { StageAnswer, StageCall, StageRunner } from '../stageRunner.js';
import type { SlotWrite } from '../weightPlan.js';
import { type CudaAddon, isOutOfDeviceMemory } from './addon.js';
import type { BucketLoader } from './bucketLoader.js';
import { OutOfDeviceMemory } from './memoryUse.js';
import type { CudaPipeline, CudaSpan } from './native.js';
import type { CudaStage } from './stage.js';

/** One micro-batch is executed while the inputs of the next wait in pinned memory. */
const ONE_DEVICE_IN_FLIGHT = 2;
/** Every stage has one to work on and one more to begin with at once. */
const IN_FLIGHT_A_STAGE = 2;
/** Calls take turns in them. */
export const PIPELINE_ARENAS = 2;

const spanOf = (device: number, kind: DeviceSpan['kind'], { begin, end }: CudaSpan): DeviceSpan => ({
  device,
  kind,
  begin,
  end,
});

const nanoseconds = (milliseconds: Float64Array | undefined): number[] =>
  Array.from(milliseconds ?? [], (value) => value * 1e6);

/** The common parts of both ways: searches, and the error if memory runs out. */
abstract class CudaStages implements StageRunner {
  abstract readonly inFlight: number;
  readonly readiness: BucketLoader;
  protected readonly stages: readonly CudaStage[];
  private readonly states: ReservedStates;

  constructor(stages: readonly CudaStage[], states: ReservedStates, readiness: BucketLoader) {
    this.stages = stages;
    this.states = states;
    this.readiness = readiness;
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
    await Promise.all(this.stages.map((stage) => stage.writeSlots(writes)));
  }

  async run(call: StageCall): Promise<StageAnswer> {
    try {
      if (call.kind !== 'search') return await this.enqueue(call);
      for (const stage of this.stages) stage.clearSearch();
      const answer = await this.enqueue(call);
      const found = await Promise.all(this.stages.map((stage) => stage.found(call)));
      const nonFinite = found.find((place) => place !== undefined);
      return nonFinite === undefined ? answer : { ...answer, nonFinite };
    } catch (error) {
      if (isOutOfDeviceMemory(error)) throw new OutOfDeviceMemory(call.extents, { cause: error });
      throw error;
    }
  }

  /** Work on a device ends by itself, or with the process. */
  stop(): void {}

  async release(): Promise<void> {
    await this.readiness.release();
    for (const stage of this.stages) await stage.release();
  }

  protected abstract enqueue(call: StageCall): Promise<StageAnswer>;
}

/** Runs everything on one device. */
export class OneDevice extends CudaStages {
  readonly inFlight = ONE_DEVICE_IN_FLIGHT;
  private readonly stage: CudaStage;

  constructor(stage: CudaStage, states: ReservedStates, readiness: BucketLoader) {
    super([stage], states, readiness);
    this.stage = stage;
  }

  protected async enqueue(call: StageCall): Promise<StageAnswer> {
    const { outputs, span, launchMilliseconds } = await this.stage.program(call, 0).run({
      extents: sizesOf(call.fn.interface, call.extents),
      inputs: this.stage.inputsOf(call.fn, call.inputs),
      isTimed: call.kind === 'profile',
      skipsAdapters: !call.hasAdapters,
    });
    return {
      outputs,
      spans: span === undefined ? [] : [spanOf(0, 'compute', span)],
      launchNanoseconds: nanoseconds(launchMilliseconds),
    };
  }
}

/** Runs each stage on a device of its own. */
export class Pipeline extends CudaStages {
  readonly inFlight: number;
  /** How each stage's results reach the next stage. */
  readonly routes: CudaPipeline['routes'];
  /** What each stage sends to the next, by function. */
  private readonly crossings: ReadonlyMap<string, readonly (readonly Crossing[])[]>;
  private readonly pipeline: CudaPipeline;
  private turns = 0;

  /**
   * `stages`: of the whole plan, in order, with PIPELINE_ARENAS arenas each; the largest bucket of every function is
   * ready, because its programs say how much memory passes through.
   */
  constructor(
    addon: CudaAddon,
    plan: RuntimePlan,
    stages: readonly CudaStage[],
    states: ReservedStates,
    readiness: BucketLoader,
    usesPeers: boolean,
  ) {
    super(stages, states, readiness);
    this.inFlight = IN_FLIGHT_A_STAGE * stages.length;
    this.crossings = new Map(
      plan.functions.map((fn) => [nameOf(fn), stages.map(({ ranges }) => crossingsOf(fn, ranges[nameOf(fn)]!.end))]),
    );
    const crossingBytes = (stage: number): number =>
      Math.max(
        ...plan.functions.map((fn) =>
          this.crossings
            .get(nameOf(fn))!
            [stage]!.reduce((sum, { rows, rowBytes }) => sum + extentIn(rows, fn.capacity.extents) * rowBytes, 0),
        ),
      );
    this.pipeline = new addon.Pipeline({
      inFlight: this.inFlight,
      usesPeers,
      stages: stages.map(({ device, clock, arenas, programs }, i) => ({
        device,
        clock,
        arenas,
        programs,
        crossingBytes: crossingBytes(i),
      })),
    });
    this.routes = this.pipeline.routes;
  }

  override async release(): Promise<void> {
    this.pipeline.release();
    await super.release();
  }

  protected async enqueue(call: StageCall): Promise<StageAnswer> {
    // A search has its programs on the first arena alone.
    const arena = call.kind === 'search' ? 0 : this.turns++ % PIPELINE_ARENAS;
    const crossings = this.crossings.get(nameOf(call.fn))!;
    const { outputs, stages } = await this.pipeline.run({
      extents: sizesOf(call.fn.interface, call.extents),
      arena,
      isTimed: call.kind === 'profile',
      skipsAdapters: !call.hasAdapters,
      stages: this.stages.map((stage, i) => ({
        program: stage.program(call, arena),
        inputs: stage.inputsOf(call.fn, call.inputs),
        crossings: crossings[i]!,
      })),
    });
    return {
      outputs,
      launchNanoseconds: stages.flatMap(({ launchMilliseconds }) => nanoseconds(launchMilliseconds)),
      spans: stages.flatMap(({ compute, sent, received }, device) => [
        spanOf(device, 'compute', compute),
        ...(device + 1 < stages.length ? [spanOf(device, 'copy', sent)] : []),
        ...(received === undefined ? [] : [spanOf(device, 'copy', received)]),
      ]),
    };
  }
}
