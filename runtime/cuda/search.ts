/** The search for values that are not finite: after each launch of a function, what it wrote. */
import { extentIn, type Extents } from '../../ir/extents.js';
import type { Stage } from '../../ir/plan.js';
import { type FloatWrite, floatWrites, nameOf, type RuntimeFunction } from '../runtimePlan.js';
import type { NonFinitePlace } from '../stageRunner.js';
import { DEVICE_ALIGNMENT } from './bindProgram.js';
import type { CudaLaunchBinding, CudaMemory, CudaModule, CudaProgramBinding } from './native.js';
import { findJob, JOB_BYTES } from './packJob.js';
import { PACK_ENTRIES } from './packKernels.js';

/** A floating buffer that a launch writes. */
interface SearchedWrite extends FloatWrite {
  /** Index among the writes of the stage, which selects its job and its answer. */
  readonly index: number;
  readonly launch: number;
}

/** All ones: a launch's results hold nothing that is not finite. */
const NOTHING = 2n ** 64n - 1n;

/** What the launches of a stage write, in every function. */
export class SearchPlan {
  readonly writes: ReadonlyMap<string, readonly SearchedWrite[]>;
  private readonly count: number;

  /** `parts`: the functions, each with the stage's launches. */
  constructor(parts: readonly (readonly [RuntimeFunction, Stage])[]) {
    let index = 0;
    this.writes = new Map(
      parts.map(([fn, { first, end }]) => [
        nameOf(fn),
        floatWrites(fn)
          .slice(first, end)
          .flatMap((writes, at) => writes.map((write) => ({ ...write, launch: first + at, index: index++ }))),
      ]),
    );
    this.count = index;
  }

  /** Bytes of all jobs, and of all answers. */
  get jobBytes(): number {
    return Math.max(1, this.count * JOB_BYTES);
  }

  get foundBytes(): number {
    return Math.max(1, Math.ceil((this.count * 8) / DEVICE_ALIGNMENT) * DEVICE_ALIGNMENT);
  }

  jobs(functions: readonly RuntimeFunction[]): Uint8Array {
    const bytes = new Uint8Array(this.jobBytes);
    for (const fn of functions)
      for (const write of this.writes.get(nameOf(fn)) ?? [])
        bytes.set(findJob(write, (extent) => extentIn(extent, fn.capacity.extents)).bytes, write.index * JOB_BYTES);
    return bytes;
  }
}

/** A stage's search. Its memory is allocated at the start, so that it cannot fail for lack of memory. */
export class NonFiniteSearch {
  private readonly plan: SearchPlan;
  private readonly pack: CudaModule;
  private readonly jobs: CudaMemory;
  /** One u64 per write, all ones before a run. */
  private readonly found: CudaMemory;

  private constructor(plan: SearchPlan, pack: CudaModule, jobs: CudaMemory, found: CudaMemory) {
    this.plan = plan;
    this.pack = pack;
    this.jobs = jobs;
    this.found = found;
  }

  static async create(
    plan: SearchPlan,
    functions: readonly RuntimeFunction[],
    pack: CudaModule,
    allocate: (bytes: number) => CudaMemory,
  ): Promise<NonFiniteSearch> {
    const search = new NonFiniteSearch(plan, pack, allocate(plan.jobBytes), allocate(plan.foundBytes));
    await search.jobs.writeAsync(0, plan.jobs(functions));
    return search;
  }

  /** The program of a bucket, with a search of each launch's results before the next launch may overwrite them. */
  bind(binding: CudaProgramBinding, fn: RuntimeFunction, { first }: Stage, bucket: Extents): CudaProgramBinding {
    const slots = [...binding.slots, { memory: this.found, offset: 0, bytes: this.found.sizeBytes }];
    const foundSlot = slots.length - 1;
    const slotOfBuffer = new Map(fn.placements.map(({ buffer }, i) => [buffer, i]));
    const writes = this.plan.writes.get(nameOf(fn)) ?? [];
    const launches = binding.launches.flatMap((launch, at): CudaLaunchBinding[] => [
      launch,
      ...writes
        .filter((write) => write.launch === first + at && slotOfBuffer.has(write.buffer))
        .map((write): CudaLaunchBinding => {
          slots.push({ memory: this.jobs, offset: write.index * JOB_BYTES, bytes: JOB_BYTES });
          return {
            name: `search of ${write.buffer}`,
            module: this.pack,
            symbol: PACK_ENTRIES.find,
            tensorMaps: [],
            usesProgrammaticLaunch: false,
            sizes: [write.rows, write.columns],
            slots: [slots.length - 1, slotOfBuffer.get(write.buffer)!, foundSlot],
            launch: findJob(write, (extent) => extentIn(extent, bucket)).launch,
          };
        }),
    ]);
    return { ...binding, slots, launches };
  }

  /** Clears the answers of the last search, after all work already enqueued. */
  clear(): void {
    this.found.fill(0xff);
  }

  /** The first value that is not finite, as found by the last search, in a call of the given size. */
  async first(fn: RuntimeFunction, extents: Extents): Promise<NonFinitePlace | undefined> {
    const writes = this.plan.writes.get(nameOf(fn)) ?? [];
    if (writes.length === 0) return undefined;
    const answers = new BigUint64Array(await this.found.readAsync(0, (writes.at(-1)!.index + 1) * 8));
    const first = writes.find(({ index }) => answers[index] !== NOTHING);
    if (first === undefined) return undefined;
    const { launch, buffer, columns, index } = first;
    const width = BigInt(extentIn(columns, extents));
    return { launch, buffer, row: Number(answers[index]! / width), column: Number(answers[index]! % width) };
  }
}
