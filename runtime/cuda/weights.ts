/**
 * Weights onto the device, as loadPlan.ts cut them: bytes stream from mapped files into staging buffers, and device
 * code lays them out. While one step is laid out the next ones are on the bus.
 */
import { FileMappings, type LoadProgress } from '../files.js';
import type { WeightPlan } from '../weightPlan.js';
import type { CudaAddon, CudaDevice, CudaLaunchBinding, CudaMemory, CudaModule, CudaSlot, CudaUpload } from './addon.js';
import type { LoadPlan, Step } from './loadPlan.js';
import { PACK_ENTRIES } from './packKernels.js';

/** Staging buffers: one on the bus, the other laid out (which is the shorter) and waiting to follow it. */
const STAGINGS = 2;

const stagingCount = (plan: LoadPlan): number => Math.min(STAGINGS, plan.steps.filter((step) => step.stagedBytes > 0).length);

/** Device memory that loading takes beside the weights. */
export const loadingBytes = (plan: LoadPlan): number => plan.jobBytes + plan.scaleBytes + stagingCount(plan) * plan.stagingBytes;

export interface LoadRequest {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  /** The module of packKernels.ts. */
  readonly pack: CudaModule;
  readonly weightPlan: WeightPlan;
  readonly loadPlan: LoadPlan;
  /** Of weightPlan.packedBytes bytes. */
  readonly weights: CudaMemory;
  readonly onProgress?: (progress: LoadProgress) => void;
}

/** What loading holds until its end. */
class Loading {
  private readonly request: LoadRequest;
  private readonly files = new FileMappings();
  private readonly memories: CudaMemory[] = [];
  private readonly jobs: CudaMemory;
  private readonly scales: CudaMemory;
  private readonly stagings: readonly CudaMemory[];
  private readonly upload: CudaUpload | undefined;

  constructor(request: LoadRequest) {
    this.request = request;
    const { addon, device, loadPlan } = request;
    const allocate = (bytes: number): CudaMemory => {
      const memory = new addon.Memory(device, bytes);
      this.memories.push(memory);
      return memory;
    };
    try {
      this.jobs = allocate(loadPlan.jobBytes);
      // Slots that a piece does not need are given the jobs: never read.
      this.scales = loadPlan.scaleBytes > 0 ? allocate(loadPlan.scaleBytes) : this.jobs;
      this.stagings = Array.from({ length: stagingCount(loadPlan) }, () => allocate(loadPlan.stagingBytes));
      this.upload = this.stagings.length > 0 ? new addon.Upload(device) : undefined;
    } catch (error) {
      this.release();
      throw error;
    }
  }

  release(): void {
    this.upload?.release();
    for (const memory of this.memories) memory.release();
    this.files.release();
  }

  async run(): Promise<void> {
    const { loadPlan, weights, weightPlan, onProgress } = this.request;
    // A file that is missing or cut off is found before the first gigabyte is on the bus.
    for (const { upload } of loadPlan.steps.flatMap((step) => step.pieces)) if (upload !== undefined) this.files.get(upload.file, upload.offset, upload.bytes);
    const jobs = new Uint8Array(loadPlan.jobBytes);
    for (const { job, jobOffset } of loadPlan.steps.flatMap((step) => step.pieces)) jobs.set(job.bytes, jobOffset);
    await this.jobs.writeAsync(0, jobs);
    for (const { offset, bytes } of loadPlan.zeros) weights.fill(0, offset, bytes);

    const totalBytes = loadPlan.steps.reduce((sum, step) => sum + step.weightBytes, 0);
    let doneBytes = 0;
    /** When the last step that used a staging buffer was laid out. */
    const freed = this.stagings.map((): Promise<unknown> => Promise.resolve());
    let before: Promise<unknown> = Promise.resolve();
    const finished: Promise<void>[] = [];
    let isFailed = false;
    let staged = 0;
    for (const step of loadPlan.steps) {
      const lane = step.stagedBytes > 0 ? staged++ % this.stagings.length : undefined;
      const previous = before;
      const isFree = lane === undefined ? previous : freed[lane]!;
      const work = (async (): Promise<void> => {
        await isFree;
        if (isFailed) return;
        if (lane !== undefined) await this.stage(step, this.stagings[lane]!);
        // In order: factors of columns are there before the weights that they scale.
        await previous;
        if (isFailed) return;
        await this.layOut(step, lane === undefined ? undefined : this.stagings[lane]!);
        doneBytes += step.weightBytes;
        onProgress?.({ doneBytes, totalBytes, weight: step.weight });
      })().catch((error: unknown) => {
        isFailed = true;
        throw error;
      });
      // Later steps look at isFailed; the error itself is taken from `finished`.
      before = work.catch(() => undefined);
      if (lane !== undefined) freed[lane] = before;
      finished.push(work);
    }
    // Nothing may be released while another step is still on the device: wait for all, then fail.
    const failed = (await Promise.allSettled(finished)).find((result) => result.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    for (const weight of weightPlan.weights) if (weight.kind === 'literal') await weights.writeAsync(weight.offset, weight.values);
  }

  /** Copies the file parts of a step; their pages are given back afterwards. */
  private async stage(step: Step, target: CudaMemory): Promise<void> {
    const uploads = step.pieces.flatMap(({ upload }) => upload ?? []);
    const parts = uploads.map(({ file, offset, bytes, stagedAt }) => {
      const source = this.files.get(file, offset, bytes);
      source.advise('willneed', offset, bytes);
      return { source, sourceOffset: offset, target, targetOffset: stagedAt, bytes };
    });
    await this.upload!.copy(parts);
    for (const { source, sourceOffset, bytes } of parts) source.advise('dontneed', sourceOffset, bytes);
  }

  private async layOut(step: Step, staging: CudaMemory | undefined): Promise<void> {
    const { addon, device, pack, weights } = this.request;
    const slots: CudaSlot[] = [];
    const slot = (memory: CudaMemory, { offset, bytes }: { readonly offset: number; readonly bytes: number }): number => slots.push({ memory, offset, bytes }) - 1;
    const launches = step.pieces.map(({ job, jobOffset, upload, target, scale }): CudaLaunchBinding => {
      const jobSlot = slot(this.jobs, { offset: jobOffset, bytes: job.bytes.length });
      const source = upload === undefined ? jobSlot : slot(staging!, { offset: upload.stagedAt, bytes: upload.bytes });
      const written = slot(target.memory === 'weights' ? weights : this.scales, target);
      return {
        name: 'loading weights', module: pack, symbol: PACK_ENTRIES.rows, tensorMaps: [], launch: job.launch, usesProgrammaticLaunch: false,
        slots: [jobSlot, source, written, scale === undefined ? jobSlot : slot(this.scales, scale)],
      };
    });
    const program = new addon.Program({ device, maxTokens: 1, maxRows: 1, slots, launches, inputs: [], outputs: [] });
    try {
      await program.run({ tokens: 1, rows: 1, inputs: [] });
    } finally {
      program.release();
    }
  }
}

/**
 * Loads every packed and literal weight of a plan into `weights`.
 * Throws UserError for files that are missing or cut off; rejects with the addon's errors.
 */
export async function loadDeviceWeights(request: LoadRequest): Promise<void> {
  const loading = new Loading(request);
  try {
    await loading.run();
  } finally {
    loading.release();
  }
}

/** Where each weight lies, by name. */
export function weightSlots(plan: WeightPlan, memory: CudaMemory): ReadonlyMap<string, CudaSlot> {
  const slots = new Map<string, CudaSlot>();
  for (const weight of plan.weights) {
    if (weight.kind === 'mapped') throw new Error(`Weight ${weight.weight.name} stays in its file, where no GPU reads it.`);
    for (const name of weight.names) slots.set(name, { memory, offset: weight.offset, bytes: weight.bytes });
  }
  return slots;
}
