/** How a micro-batch goes through the devices of an executor: one device at a time, or a pipeline of them. */
import { DTYPE_BYTES } from '../../ir/types.js';
import { rowStride } from '../../ir/plan.js';
import { sizeOfBatch, type Batch } from '../batch.js';
import { mostOf, programExtents, sizesOf } from '../extents.js';
import type { RuntimePlan } from '../ports.js';
import type { DeviceSpan } from '../scoring.js';
import { boundaryOf } from '../stagePlan.js';
import type { CudaAddon, CudaCrossing, CudaPipeline, CudaSpan } from './addon.js';
import type { CudaStage } from './stage.js';

export interface RunRequest {
  readonly bucket: number;
  readonly batch: Batch;
  readonly kind: 'score' | 'profile' | 'search';
}

export interface RunResult {
  readonly outputs: readonly ArrayBuffer[];
  readonly spans: readonly DeviceSpan[];
  /** Of every launch of the whole plan, where profiled. */
  readonly launchMilliseconds: readonly number[];
}

export interface StageRunner {
  /** Micro-batches that may be in `run` at a time. */
  readonly inFlight: number;
  /** Enqueues at once, in order of calls, and waits off the JavaScript thread. */
  run(request: RunRequest): Promise<RunResult>;
  release(): void;
}

/** One is executed while the next one's inputs wait in pinned memory. */
const ONE_DEVICE_IN_FLIGHT = 2;
/** Every stage has one to work on and one more to begin with at once. */
const IN_FLIGHT_A_STAGE = 2;
/** Micro-batches take turns in them. */
export const PIPELINE_ARENAS = 2;

const spanOf = (device: number, kind: DeviceSpan['kind'], { begin, end }: CudaSpan): DeviceSpan => ({
  device,
  kind,
  begin,
  end,
});

const programOf = (stage: CudaStage, { kind, bucket }: RunRequest, arena: number): ReturnType<CudaStage['program']> =>
  kind === 'search' ? stage.searchProgram(bucket) : stage.program(bucket, arena);

/** Everything on one device. */
export class OneDevice implements StageRunner {
  readonly inFlight = ONE_DEVICE_IN_FLIGHT;
  private readonly stage: CudaStage;

  constructor(stage: CudaStage) {
    this.stage = stage;
  }

  async run(request: RunRequest): Promise<RunResult> {
    const { batch, kind } = request;
    const { outputs, span, launchMilliseconds } = await programOf(this.stage, request, 0).run({
      extents: sizesOf({ extents: sizeOfBatch(batch) }),
      inputs: this.stage.inputsOf(batch),
      isTimed: kind === 'profile',
    });
    return {
      outputs,
      spans: span === undefined ? [] : [spanOf(0, 'compute', span)],
      launchMilliseconds: [...(launchMilliseconds ?? [])],
    };
  }

  release(): void {}
}

/** What crosses a cut before launch `end`, as ranges of the arena. */
export function crossingsOf(plan: RuntimePlan, end: number): readonly CudaCrossing[] {
  const offsets = new Map(plan.placements.map(({ buffer, offset }) => [buffer, offset]));
  return boundaryOf(plan, end).map((buffer) => {
    const offset = offsets.get(buffer.name);
    if (offset === undefined) throw new Error(`Nothing places ${buffer.name}, which crosses a cut.`);
    const bytes = DTYPE_BYTES[buffer.dtype];
    return { offset, rows: buffer.rows, rowBytes: rowStride(buffer, plan.capacity.extents, bytes) * bytes };
  });
}

const extentIn = ({ capacity }: RuntimePlan, rows: CudaCrossing['rows']): number =>
  mostOf(rows, programExtents(capacity));

/** A device for each stage. */
export class Pipeline implements StageRunner {
  readonly inFlight: number;
  /** How each stage's results reach the next. */
  readonly routes: CudaPipeline['routes'];
  private readonly stages: readonly CudaStage[];
  private readonly crossings: readonly (readonly CudaCrossing[])[];
  private readonly pipeline: CudaPipeline;
  private turns = 0;

  /** `plan`: the whole, of which each stage has a part, in order, with PIPELINE_ARENAS arenas. */
  constructor(addon: CudaAddon, plan: RuntimePlan, stages: readonly CudaStage[], usesPeers: boolean) {
    this.stages = stages;
    this.inFlight = IN_FLIGHT_A_STAGE * stages.length;
    this.crossings = stages.map(({ range }, i) => (i + 1 === stages.length ? [] : crossingsOf(plan, range.end)));
    this.pipeline = new addon.Pipeline({
      inFlight: this.inFlight,
      usesPeers,
      stages: stages.map(({ device, clock, arenas, programs }, i) => ({
        device,
        clock,
        arenas,
        programs,
        crossingBytes: this.crossings[i]!.reduce((sum, { rows, rowBytes }) => sum + extentIn(plan, rows) * rowBytes, 0),
      })),
    });
    this.routes = this.pipeline.routes;
  }

  async run(request: RunRequest): Promise<RunResult> {
    const { batch, kind } = request;
    // A search has its programs on the first arena alone.
    const arena = kind === 'search' ? 0 : this.turns++ % PIPELINE_ARENAS;
    const { outputs, stages } = await this.pipeline.run({
      extents: sizesOf({ extents: sizeOfBatch(batch) }),
      arena,
      isTimed: kind === 'profile',
      stages: this.stages.map((stage, i) => ({
        program: programOf(stage, request, arena),
        inputs: stage.inputsOf(batch),
        crossings: this.crossings[i]!,
      })),
    });
    return {
      outputs,
      launchMilliseconds: stages.flatMap(({ launchMilliseconds }) => [...(launchMilliseconds ?? [])]),
      spans: stages.flatMap(({ compute, sent, received }, device) => [
        spanOf(device, 'compute', compute),
        ...(device + 1 < stages.length ? [spanOf(device, 'copy', sent)] : []),
        ...(received === undefined ? [] : [spanOf(device, 'copy', received)]),
      ]),
    };
  }

  release(): void {
    this.pipeline.release();
  }
}
