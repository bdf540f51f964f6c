/**
 * Weights onto the device, as loadPlan.ts cut them: bytes stream from mapped files into staging buffers, and device
 * code lays them out. Everything is made before the first byte moves; then the addon runs all steps in one go, a few
 * of them on the bus while the ones before are laid out, ordered by events and without waiting for any.
 */
import { UserError } from '../../errors.js';
import { encodedMatrix, FileMappings, type LoadProgress, orDamaged } from '../files.js';
import type { EncodedMatrix, NativeMemory } from '../native.js';
import type { EncodedSource } from '../tensorSource.js';
import type { WeightPlan } from '../weightPlan.js';
import type { CudaAddon } from './addon.js';
import { DAMAGED_AT, isInOrder } from './encodedJob.js';
import { type Copy, type LoadPlan, planLoading, type LoadStep } from './loadPlan.js';
import type {
  CudaDevice,
  CudaLaunchBinding,
  CudaMemory,
  CudaModule,
  CudaProgram,
  CudaSlot,
  CudaUpload,
  CudaUploadStep,
  CudaUploadTimes,
} from './native.js';
import { PACK_ENTRIES } from './packKernels.js';

/** Device memory that loading needs besides the weights. */
export const loadingBytes = ({ jobBytes, scaleBytes, stagings, stagingBytes }: LoadPlan): number =>
  jobBytes + scaleBytes + stagings * stagingBytes;

export interface WeightLoad {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  /** The module of packKernels.ts. */
  readonly pack: CudaModule;
  readonly weightPlan: WeightPlan;
  readonly loadPlan: LoadPlan;
  /** Holds weightPlan.packedBytes bytes. */
  readonly weights: CudaMemory;
  readonly onProgress?: (progress: LoadProgress) => void;
}

/** The time that a load took, in seconds. */
export interface LoadTimes {
  /** Opening files and allocating: pinned buffers, staging buffers, programs. */
  readonly preparing: number;
  /** Moving data and laying it out. */
  readonly streaming: CudaUploadTimes;
  /** Releasing what loading needed. */
  readonly releasing: number;
  /** Bytes read from files. */
  readonly copiedBytes: number;
  /** Where replicas that start together share what they read. */
  readonly sharing?: ShareTimes;
}

/** How weights were copied from siblings. Seconds and bytes. */
export interface ShareTimes {
  /** Until the last sibling had its part ready. */
  readonly waiting: number;
  /** Reaching the siblings' memory and copying, after that. */
  readonly copying: number;
  readonly copiedBytes: number;
  /** Siblings whose part was read from files instead, each with the reason. */
  readonly lost: readonly { readonly sibling: number; readonly reason: string }[];
}

/** What came from siblings, and what did not. */
function printSharing({ waiting, copying, copiedBytes, lost }: ShareTimes): string {
  const parts = [`waited ${waiting.toFixed(2)} s for other devices`];
  if (copiedBytes > 0)
    parts.push(
      `${(copiedBytes / 1e9).toFixed(2)} GB copied from them in ${copying.toFixed(2)} s at ` +
        `${(copiedBytes / Math.max(copying, Number.MIN_VALUE) / 1e9).toFixed(0)} GB/s`,
    );
  if (lost.length > 0) parts.push(`the parts of ${lost.length} read from files as well: ${lost[0]!.reason}`);
  return `; ${parts.join(', ')}`;
}

/** One line for people: how long, how fast, and what it waited for. */
export function printLoadTimes({ preparing, streaming, releasing, copiedBytes, sharing }: LoadTimes): string {
  const seconds = preparing + streaming.total + releasing;
  const ms = (value: number): string => `${(value * 1000).toFixed(0)} ms`;
  if (copiedBytes === 0) return `weights made up in ${seconds.toFixed(2)} s`;
  const share = (part: number): string =>
    `${((100 * part) / Math.max(streaming.total, Number.MIN_VALUE)).toFixed(0)} %`;
  const rate = (over: number): string => (copiedBytes / over / 1e9).toFixed(1);
  return (
    `weights loaded in ${seconds.toFixed(2)} s: ` +
    `${(copiedBytes / 1e9).toFixed(2)} GB of files at ${rate(seconds)} GB/s ` +
    `(streaming ${ms(streaming.total)} at ${rate(streaming.total)} GB/s: ` +
    `threads reading ${share(streaming.reading)}, waiting for the bus ${share(streaming.bus)}, ` +
    `for launches ${share(streaming.launches)}, device laying out ${share(streaming.device)}; ` +
    `preparing ${ms(preparing)}, releasing ${ms(releasing)})${sharing === undefined ? '' : printSharing(sharing)}`
  );
}

/** Between two looks at how far the copies are. */
const PROGRESS_MS = 100;
/**
 * Pinning costs 0.3 s a GB: none for an upload that copies nothing, little for a short one.
 */
const NO_COPIES = { threads: 1, buffers: 1, bufferBytes: 4096 };
const SHORT_COPIES = { threads: 2, buffers: 2, bufferBytes: 1 << 20 };
/** Bytes of files up to which SHORT_COPIES do. */
const SHORT = 64 << 20;

const uploadOptions = (
  bytes: number,
): { readonly threads: number; readonly buffers: number; readonly bufferBytes: number } | undefined =>
  bytes === 0 ? NO_COPIES : bytes <= SHORT ? SHORT_COPIES : undefined;

const bytesOf = ({ copies }: LoadStep): number => copies.reduce((sum, { bytes }) => sum + bytes, 0);
/** Bytes that cross the bus. */
export const copiedBytesOf = (plan: LoadPlan): number => plan.steps.reduce((sum, step) => sum + bytesOf(step), 0);
const weightBytesOf = (plan: LoadPlan): number => plan.steps.reduce((sum, step) => sum + step.weightBytes, 0);

const isUnreadableFile = (error: unknown): error is Error =>
  error instanceof Error && 'code' in error && error.code === 'FILE_UNREADABLE';

const NOTHING_STREAMED: CudaUploadTimes = { total: 0, reading: 0, bus: 0, launches: 0, device: 0 };

/** Encoded tensors are left to the host, which decodes what the device cannot, or says what is wrong with it. */
class HostDecodes extends Error {
  readonly isOnHost: (tensor: EncodedSource) => boolean;

  constructor(isOnHost: (tensor: EncodedSource) => boolean) {
    super('The device cannot decode all tensors.');
    this.isOnHost = isOnHost;
  }
}

/** What loading holds until its end. */
class WeightLoader {
  private readonly request: WeightLoad;
  private readonly files = new FileMappings();
  private readonly held: { release(): void }[] = [];
  private readonly jobs: CudaMemory;
  private readonly upload: CudaUpload;
  private readonly program: CudaProgram;
  private readonly steps: readonly CudaUploadStep[];

  constructor(request: WeightLoad) {
    this.request = request;
    const { addon, device, loadPlan } = request;
    const own = <T extends { release(): void }>(made: T): T => {
      this.held.push(made);
      return made;
    };
    const allocate = (bytes: number): CudaMemory => own(new addon.Memory(device, bytes));
    try {
      // A file that is missing or cut off is found before the first gigabyte is on the bus.
      for (const { copies } of loadPlan.steps) for (const copy of copies) this.sourceOf(copy);
      const unordered = loadPlan.ordered.filter((tensor) => !this.isInOrder(tensor));
      if (unordered.length > 0) throw new HostDecodes((tensor) => unordered.includes(tensor));
      this.jobs = allocate(loadPlan.jobBytes);
      // Slots that a job does not need are given the jobs: never read.
      const scales = loadPlan.scaleBytes > 0 ? allocate(loadPlan.scaleBytes) : this.jobs;
      const stagings = Array.from({ length: loadPlan.stagings }, () => allocate(loadPlan.stagingBytes));
      this.upload = own(new addon.Upload(device, uploadOptions(copiedBytesOf(loadPlan))));
      this.program = own(this.bind(scales, stagings));
      this.steps = this.uploadSteps(stagings);
    } catch (error) {
      this.release();
      throw error;
    }
  }

  release(): void {
    for (const held of this.held.splice(0).reverse()) held.release();
    this.files.release();
  }

  async run(): Promise<CudaUploadTimes> {
    const { loadPlan, onProgress } = this.request;
    const jobs = new Uint8Array(loadPlan.jobBytes);
    for (const { job, jobOffset } of loadPlan.steps.flatMap(({ layings }) => layings)) jobs.set(job.bytes, jobOffset);
    await this.jobs.writeAsync(0, jobs);
    const stopWatching = onProgress === undefined ? undefined : this.watch(onProgress);
    let times: CudaUploadTimes;
    try {
      times = await orDamaged(
        async () => this.upload.load(this.program, this.steps),
        (tensor) => this.encodedSource(tensor),
      );
    } catch (error) {
      if (!isUnreadableFile(error)) throw error;
      throw new UserError(`${error.message}.`, 'Is the checkpoint whole, and the disk? Download it again if not.', {
        cause: error,
      });
    } finally {
      stopWatching?.();
    }
    if (await this.isDamaged()) throw new HostDecodes(() => true);
    const last = loadPlan.steps.at(-1);
    const totalBytes = weightBytesOf(loadPlan);
    if (last !== undefined) onProgress?.({ doneBytes: totalBytes, totalBytes, weight: last.weight });
    return times;
  }

  private isInOrder(tensor: EncodedSource): boolean {
    const { file, offset, byteLength } = tensor.parts.groups!;
    return isInOrder(tensor, new Int32Array(this.files.get(file, offset, byteLength).read(offset, byteLength)));
  }

  /** Whether the device decoded an invalid scale. */
  private async isDamaged(): Promise<boolean> {
    const decoding = this.request.loadPlan.steps
      .flatMap(({ layings }) => layings)
      .filter(({ job }) => job.bytes.length > DAMAGED_AT);
    if (decoding.length === 0) return false;
    const jobs = new DataView(await this.jobs.readAsync(0, this.request.loadPlan.jobBytes));
    return decoding.some(({ jobOffset }) => jobs.getInt32(jobOffset + DAMAGED_AT, true) !== 0);
  }

  /** One launch a laying, in the order of steps. */
  private bind(scales: CudaMemory, stagings: readonly CudaMemory[]): CudaProgram {
    const { addon, device, pack, weights, loadPlan } = this.request;
    const slots: CudaSlot[] = [];
    const slot = (memory: CudaMemory, { offset, bytes }: { readonly offset: number; readonly bytes: number }): number =>
      slots.push({ memory, offset, bytes }) - 1;
    const launches = loadPlan.steps.flatMap(({ layings, staging }) =>
      layings.map(({ job, jobOffset, staged, target, scale, rowScales }): CudaLaunchBinding => {
        const jobSlot = slot(this.jobs, { offset: jobOffset, bytes: job.bytes.length });
        const source = staged === undefined ? jobSlot : slot(stagings[staging]!, staged);
        const written = slot(target.memory === 'weights' ? weights : scales, target);
        const factors = scale === undefined ? jobSlot : slot(scales, scale);
        const { symbol = PACK_ENTRIES.rows } = job;
        const own = [jobSlot, source, written, factors];
        return {
          name: 'loading weights',
          module: pack,
          symbol,
          tensorMaps: [],
          launch: job.launch,
          usesProgrammaticLaunch: false,
          slots:
            symbol === PACK_ENTRIES.codes
              ? [...own, rowScales === undefined ? jobSlot : slot(weights, rowScales)]
              : own,
        };
      }),
    );
    return new addon.Program({ device, extents: [], slots, launches, inputs: [], outputs: [] });
  }

  private uploadSteps(stagings: readonly CudaMemory[]): readonly CudaUploadStep[] {
    let end = 0;
    return this.request.loadPlan.steps.map(({ copies, layings, staging, after }) => {
      const first = end;
      end += layings.length;
      const parts = copies.map((copy) => ({
        ...this.sourceOf(copy),
        sourceOffset: copy.offset,
        target: stagings[staging]!,
        targetOffset: copy.stagedAt,
        bytes: copy.bytes,
      }));
      return { parts, launches: { first, end }, after };
    });
  }

  private encodedSource(tensor: string): EncodedSource | undefined {
    for (const { file, name } of this.request.loadPlan.steps.flatMap(({ copies }) => copies))
      if (name === tensor && typeof file !== 'string') return file;
    return undefined;
  }

  private sourceOf({ file, name, offset, bytes }: Copy): { source: NativeMemory } | { encoded: EncodedMatrix } {
    return typeof file === 'string'
      ? { source: this.files.get(file, offset, bytes) }
      : { encoded: encodedMatrix(file, name, this.files) };
  }

  /** Reports what is on its way to the device now and then; returns what ends it. */
  private watch(onProgress: (progress: LoadProgress) => void): () => void {
    const { steps } = this.request.loadPlan;
    const totalBytes = weightBytesOf(this.request.loadPlan);
    const timer = setInterval(() => {
      let left = this.upload.copiedBytes;
      let doneBytes = 0;
      let weight = '';
      for (const step of steps) {
        left -= bytesOf(step);
        if (left < 0) break;
        doneBytes += step.weightBytes;
        ({ weight } = step);
      }
      onProgress({ doneBytes, totalBytes, weight });
    }, PROGRESS_MS);
    return () => clearInterval(timer);
  }
}

/**
 * Loads every packed and literal weight of a plan into `weights`.
 * Throws UserError for files that are missing or cut off; rejects with the addon's errors.
 */
export async function loadDeviceWeights(request: WeightLoad): Promise<LoadTimes> {
  const seconds = (from: number): number => (performance.now() - from) / 1000;
  const begin = performance.now();
  const { loadPlan, weightPlan, weights } = request;
  for (const { offset, bytes } of loadPlan.zeros) weights.fill(0, offset, bytes);
  for (const weight of weightPlan.weights)
    if (weight.kind === 'literal') await weights.writeAsync(weight.offset, weight.values);
  // A replica's part may hold nothing to lay out.
  if (loadPlan.steps.length === 0)
    return { preparing: seconds(begin), streaming: NOTHING_STREAMED, releasing: 0, copiedBytes: 0 };
  try {
    const loading = new WeightLoader(request);
    const preparing = seconds(begin);
    let streaming: CudaUploadTimes;
    let end = 0;
    try {
      streaming = await loading.run();
    } finally {
      end = performance.now();
      loading.release();
    }
    return { preparing, streaming, releasing: seconds(end), copiedBytes: copiedBytesOf(loadPlan) };
  } catch (error) {
    if (!(error instanceof HostDecodes)) throw error;
    return await loadDeviceWeights({ ...request, loadPlan: planLoading(weightPlan, undefined, error.isOnHost) });
  }
}

/** Where each weight lies, by name. */
export function weightSlots(plan: WeightPlan, memory: CudaMemory): ReadonlyMap<string, CudaSlot> {
  const slots = new Map<string, CudaSlot>();
  for (const weight of plan.weights) {
    if (weight.kind === 'mapped')
      throw new Error(`Weight ${weight.weight.name} stays in its file, where no GPU reads it.`);
    for (const name of weight.names) slots.set(name, { memory, offset: weight.offset, bytes: weight.bytes });
  }
  return slots;
}
