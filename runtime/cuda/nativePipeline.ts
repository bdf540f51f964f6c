/** The typed side of the addon's pipelines: devices that hand micro-batches on (runtime/native/cudaPipeline). */
import type { Extent, PortData } from '../nativeProgram.js';
import type { CudaClock, CudaDevice, CudaMemory, CudaSpan } from './nativeDevice.js';
import type { CudaProgram } from './nativeProgram.js';

/** Rows of a buffer that the next stage reads: a range of the arena, the same on both devices. */
export interface CudaCrossing {
  readonly offset: number;
  readonly rows: Extent;
  readonly rowBytes: number;
}

export interface CudaPipelineBinding {
  /** In order; devices may be of one ordinal. Every stage has as many arenas, all of one size. */
  readonly stages: readonly {
    readonly device: CudaDevice;
    readonly clock: CudaClock;
    readonly arenas: readonly CudaMemory[];
    /** Those with the most inputs and outputs that will run. */
    readonly programs: readonly CudaProgram[];
    /** Most bytes that are sent to the next stage. */
    readonly crossingBytes: number;
  }[];
  /** Most micro-batches that may be in flight at a time. */
  readonly inFlight: number;
  /** If false, all transfers between stages go through the host. */
  readonly usesPeers: boolean;
}

export interface CudaPipelineRequest {
  readonly extents: readonly number[];
  /** Which arena it uses on every stage; the programs are bound to it. */
  readonly arena: number;
  readonly isTimed?: boolean;
  readonly stages: readonly {
    readonly program: CudaProgram;
    readonly inputs: readonly PortData[];
    readonly crossings: readonly CudaCrossing[];
  }[];
}

export interface CudaPipelineResult {
  /** Outputs of the last stage's program. */
  readonly outputs: readonly ArrayBuffer[];
  readonly stages: readonly {
    readonly compute: CudaSpan;
    /** To the next device or, where that is the way, to the host; the last stage's outputs. */
    readonly sent: CudaSpan;
    /** From the host, where that is the way. */
    readonly received?: CudaSpan;
    readonly launchMilliseconds?: Float64Array;
  }[];
}

/** Devices that hand micro-batches on to each other. Keeps devices, arenas and programs in flight alive. */
export interface CudaPipeline {
  /** How each stage but the last reaches the next: on one device, device to device, or through the host. */
  readonly routes: readonly ('local' | 'peer' | 'host')[];
  /**
   * Enqueues on all stages off the JavaScript thread, in the order of these calls, and in that order between other
   * work of each device. Throws where `inFlight` are on their way already.
   */
  run(request: CudaPipelineRequest): Promise<CudaPipelineResult>;
  /** Micro-batches in flight are finished first. */
  release(): void;
}
