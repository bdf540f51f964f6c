/**
 * Two models that share a device, simulated event by event: batches grow with the pages that a model has, pages stay
 * until their memory is taken, and both models' steps share the device's time. Deterministic: it has a clock of its
 * own.
 */
import type { MemoryUse, MemoryUser } from '../engine/memory.js';
import { PAGE_TOKENS } from '../engine/pages.js';
import { StepTimes } from '../engine/stepTimes.js';

/** Numbers from 0 to 1 that depend on nothing but the seed. */
export function randomOf(seed: number): () => number {
  let state = seed;
  return () => (state = (state * 48_271) % 0x7fff_ffff) / 0x7fff_ffff;
}

/** What a model takes of a device. */
export interface SimulatedCost {
  readonly name: string;
  /** Seconds of reading the weights once, of computing a token, and of reading a key. */
  readonly weights: number;
  readonly token: number;
  readonly key: number;
  readonly pieceBytes: number;
  readonly piecePages: number;
}

/**
 * 1B and 8B shapes on one H100, from 3.08 TB/s and 700 TFLOP/s: 2.47 and 15 GB of weights, 32 and 128 KiB of keys and
 * values a token, in pieces of 2 MiB for keys or values of a layer.
 */
export const SMALL: SimulatedCost = {
  name: '1B',
  weights: 0.8e-3,
  token: 3.5e-6,
  key: 10.6e-9,
  pieceBytes: 64 * 2 ** 20,
  piecePages: 128,
};
export const LARGE: SimulatedCost = {
  name: '8B',
  weights: 5e-3,
  token: 20e-6,
  key: 42e-9,
  pieceBytes: 128 * 2 ** 20,
  piecePages: 64,
};

/** Most new tokens of a step, and sequences that write in it. */
const STEP_TOKENS = 8192;
const STEP_SEQUENCES = 512;
/** Seconds to map or unmap a byte: 60 µs for 2 MiB. */
const MAP_SECONDS = 3e-11;
/** Pages that were taken are remembered so long. */
const GHOSTS = 65_536;

/** A text by the pages that it consists of. Texts that begin alike share pages. */
export class SimulatedPath {
  private static pages = 0;
  private readonly pages: number[];

  constructor(pages: readonly number[] = []) {
    this.pages = [...pages];
  }

  page(i: number): number {
    while (this.pages.length <= i) this.pages.push(SimulatedPath.pages++);
    return this.pages[i]!;
  }

  /** Another text that begins with the first `tokens` tokens of this one. */
  fork(tokens: number): SimulatedPath {
    const full = Math.floor(tokens / PAGE_TOKENS);
    this.page(Math.max(0, full - 1));
    return new SimulatedPath(this.pages.slice(0, full));
  }
}

/** A request: `prompt` tokens of a path, and `answer` tokens more. */
export interface SimulatedRequest {
  readonly path: SimulatedPath;
  readonly prompt: number;
  readonly answer: number;
  readonly done: () => void;
}

interface Running extends SimulatedRequest {
  length: number;
  computed: number;
  readonly places: number[];
  /** Pages that others can find. */
  published: number;
  isRunning: boolean;
  /** Whether it was preempted before. */
  isAgain: boolean;
}

/** Free places, the lowest first. */
class Places {
  private readonly isFree: Uint8Array;
  private lowest = 0;
  count = 0;
  size = 0;

  constructor(most: number) {
    this.isFree = new Uint8Array(most);
  }

  add(place: number): void {
    this.isFree[place] = 1;
    this.count++;
    this.lowest = Math.min(this.lowest, place);
  }

  remove(place: number): void {
    this.isFree[place] = 0;
    this.count--;
  }

  has(place: number): boolean {
    return this.isFree[place] === 1;
  }

  take(): number | undefined {
    if (this.count === 0) return undefined;
    while (this.isFree[this.lowest] === 0) this.lowest++;
    this.remove(this.lowest);
    return this.lowest;
  }
}

/** A model's loop: admission, batches, pages, preemption, as the scheduler of engine/ has them. */
export class SimulatedModel implements MemoryUser {
  readonly name: string;
  readonly maxPages: number;
  readonly piecePages: number;
  readonly pieceBytes: number;
  readonly cost: SimulatedCost;
  readonly times = new StepTimes();
  /** Tokens that requests asked to compute, without those found or computed again. */
  usefulTokens = 0;
  computedTokens = 0;
  preemptions = 0;
  private readonly waiting: Running[] = [];
  private readonly running: Running[] = [];
  private readonly free: Places;
  private readonly contents: Int32Array;
  private readonly holders: Int32Array;
  private readonly byContent = new Map<number, number>();
  private readonly idle = new Set<number>();
  private readonly ghosts = new Map<number, number>();
  private pages = 0;
  private evictions = 0;
  private foundPages = 0;
  private lostPages = 0;
  private lostDistance = 0;
  private isShort = false;
  private longest = 1;
  private unmapping = 0;
  /** The step on its way: device seconds that are left, and what follows. */
  step: { left: number; readonly alone: number; begun: number; readonly end: (stretch: number) => void } | undefined;
  /** Mapping that has been asked for, before the next step. */
  private readonly resizes: { readonly pages: number; readonly resolve: (pages: number) => void }[] = [];

  constructor(cost: SimulatedCost, budgetBytes: number) {
    this.cost = cost;
    this.name = cost.name;
    this.piecePages = cost.piecePages;
    this.pieceBytes = cost.pieceBytes;
    this.maxPages = Math.floor(budgetBytes / cost.pieceBytes) * cost.piecePages;
    this.free = new Places(this.maxPages + 1);
    this.contents = new Int32Array(this.maxPages).fill(-1);
    this.holders = new Int32Array(this.maxPages);
  }

  submit(request: SimulatedRequest): void {
    this.usefulTokens += request.answer;
    this.waiting.push({
      ...request,
      length: request.prompt,
      computed: 0,
      places: [],
      published: 0,
      isRunning: false,
      isAgain: false,
    });
    this.longest = Math.max(this.longest, request.prompt + request.answer);
  }

  get isIdle(): boolean {
    return this.waiting.length + this.running.length === 0;
  }

  get leastPages(): number {
    return Math.ceil(this.longest / PAGE_TOKENS) + 1;
  }

  get acceptedPages(): number {
    return this.leastPages;
  }

  use(): MemoryUse {
    return {
      pages: this.pages,
      held: this.held,
      idle: this.idle.size,
      wanted: this.waiting
        .slice(0, Math.max(0, STEP_SEQUENCES - this.running.length))
        .reduce((sum, { length }) => sum + Math.ceil((length + 1) / PAGE_TOKENS), 0),
      isShort: this.isShort,
      steps: this.times.steps,
      cost: this.times.cost,
      foundPages: this.foundPages,
      lostPages: this.lostPages,
      lostDistance: this.lostDistance,
    };
  }

  resize(pages: number): Promise<number> {
    if (pages < this.pages) this.shrink(pages);
    return new Promise((resolve) => this.resizes.push({ pages, resolve }));
  }

  /** Seconds of mapping that come before the next step. */
  private mapped(): number {
    let seconds = 0;
    for (const { pages, resolve } of this.resizes.splice(0)) {
      seconds += (Math.abs(pages - this.pages) / this.piecePages) * this.pieceBytes * MAP_SECONDS;
      for (let page = this.pages; page < pages; page++) this.free.add(page);
      this.pages = pages;
      resolve(pages);
    }
    return seconds;
  }

  /** The sequences that came last give up what does not fit, and what lies behind is copied to where there is room. */
  private shrink(pages: number): void {
    while (this.held > pages) this.preempt(this.running.at(-1)!);
    while (this.held + this.idle.size > pages) this.evict(this.idle.values().next().value!, true);
    const moved = new Map<number, number>();
    for (let place = pages; place < this.pages; place++) if (this.free.has(place)) this.free.remove(place);
    for (let place = pages; place < this.pages; place++) {
      if (this.holders[place] === 0 && this.contents[place] === -1) continue;
      const to = this.free.take()!;
      moved.set(place, to);
      this.holders[to] = this.holders[place]!;
      this.contents[to] = this.contents[place]!;
      if (this.byContent.get(this.contents[to]!) === place) this.byContent.set(this.contents[to]!, to);
      this.holders[place] = 0;
      this.contents[place] = -1;
    }
    const idle = [...this.idle].map((place) => moved.get(place) ?? place);
    this.idle.clear();
    for (const place of idle) this.idle.add(place);
    for (const { places } of this.running) places.forEach((place, i) => (places[i] = moved.get(place) ?? place));
    const bytes = ((this.pages - pages) / this.piecePages) * this.pieceBytes;
    this.pages = pages;
    this.unmapping += bytes * MAP_SECONDS;
  }

  private get held(): number {
    return this.pages - this.free.count - this.idle.size;
  }

  private evict(place: number, isFreed = false): void {
    this.idle.delete(place);
    if (isFreed) this.free.add(place);
    const content = this.contents[place]!;
    this.byContent.delete(content);
    this.contents[place] = -1;
    this.ghosts.set(content, this.evictions++);
    if (this.ghosts.size > GHOSTS) this.ghosts.delete(this.ghosts.keys().next().value!);
  }

  private take(): number | undefined {
    let place = this.free.take();
    if (place === undefined) {
      [place] = this.idle;
      if (place === undefined) return undefined;
      this.evict(place);
    }
    this.holders[place] = 1;
    return place;
  }

  private release(place: number): void {
    if (--this.holders[place]! > 0) return;
    if (this.contents[place] === -1) this.free.add(place);
    else this.idle.add(place);
  }

  private preempt(sequence: Running): void {
    this.running.splice(this.running.indexOf(sequence), 1);
    sequence.isRunning = false;
    sequence.isAgain = true;
    this.drop(sequence);
    this.waiting.unshift(sequence);
    this.preemptions++;
  }

  private drop(sequence: Running): void {
    for (let place = sequence.places.pop(); place !== undefined; place = sequence.places.pop()) this.release(place);
    sequence.computed = 0;
    sequence.published = 0;
  }

  private reserve(sequence: Running, tokens: number, isTaken: (victim: Running) => boolean): boolean {
    while (sequence.places.length * PAGE_TOKENS < tokens) {
      const content = sequence.path.page(sequence.places.length);
      const ghost = this.ghosts.get(content);
      const place = this.take();
      if (place === undefined) {
        const victim = this.running.at(-1);
        if (victim === undefined || victim === sequence || isTaken(victim)) return false;
        this.preempt(victim);
        continue;
      }
      if (ghost !== undefined) {
        this.ghosts.delete(content);
        // Who was preempted would have been with more memory, too.
        if (!sequence.isAgain) {
          this.lostPages++;
          this.lostDistance += this.evictions - ghost;
        }
      }
      sequence.places.push(place);
    }
    return true;
  }

  private adopt(sequence: Running): void {
    while ((sequence.places.length + 1) * PAGE_TOKENS < sequence.length) {
      const place = this.byContent.get(sequence.path.page(sequence.places.length));
      if (place === undefined) break;
      if (this.idle.delete(place)) this.foundPages++;
      this.holders[place]!++;
      sequence.places.push(place);
    }
    sequence.published = sequence.places.length;
    sequence.computed = sequence.places.length * PAGE_TOKENS;
  }

  private publish(sequence: Running): void {
    for (; (sequence.published + 1) * PAGE_TOKENS <= sequence.computed; sequence.published++) {
      const content = sequence.path.page(sequence.published);
      if (this.byContent.has(content)) continue;
      this.byContent.set(content, sequence.places[sequence.published]!);
      this.contents[sequence.places[sequence.published]!] = content;
    }
  }

  /** Begins a step, which stands for sixteen where sequences write: a page of each. */
  begin(now: number): void {
    const mapping = this.mapped() + this.unmapping;
    this.unmapping = 0;
    const taken = new Map<Running, { readonly from: number; readonly to: number }>();
    /** Pages that this step fills: whoever needs them too waits for them. */
    const filling = new Set<number>();
    let budget = STEP_TOKENS;
    const take = (sequence: Running): boolean => {
      const isWriting = sequence.computed >= sequence.prompt;
      const left = sequence.prompt + sequence.answer - sequence.computed;
      const count = isWriting ? Math.min(PAGE_TOKENS, left) : Math.min(sequence.length - sequence.computed, budget);
      if (count <= 0 || !this.reserve(sequence, sequence.computed + count, (each) => taken.has(each))) return false;
      taken.set(sequence, { from: sequence.computed, to: sequence.computed + count });
      for (let i = Math.floor(sequence.computed / PAGE_TOKENS); (i + 1) * PAGE_TOKENS <= sequence.computed + count; i++)
        filling.add(sequence.path.page(i));
      budget -= isWriting ? 1 : count;
      return true;
    };
    for (const sequence of [...this.running]) if (sequence.isRunning) take(sequence);
    this.isShort = false;
    for (let i = 0; i < this.waiting.length && budget > 0 && this.running.length < STEP_SEQUENCES;) {
      const sequence = this.waiting[i]!;
      this.adopt(sequence);
      const isFilled = filling.has(sequence.path.page(sequence.places.length));
      const needed = Math.ceil((sequence.length - sequence.computed + 1) / PAGE_TOKENS);
      if (!isFilled && needed <= this.free.count + this.idle.size && take(sequence)) {
        this.waiting.splice(i, 1);
        sequence.isRunning = true;
        this.running.push(sequence);
        continue;
      }
      this.drop(sequence);
      i++;
      if (isFilled) continue;
      this.isShort = true;
      break;
    }
    if (taken.size === 0) return;
    this.launch(taken, mapping, now);
  }

  private launch(
    taken: ReadonlyMap<Running, { readonly from: number; readonly to: number }>,
    mapping: number,
    now: number,
  ): void {
    const { weights, token, key } = this.cost;
    let [prompts, promptKeys, writing, writtenKeys] = [0, 0, 0, 0];
    for (const [{ prompt }, { from, to }] of taken)
      if (from >= prompt) [writing, writtenKeys] = [writing + 1, writtenKeys + to];
      else [prompts, promptKeys] = [prompts + to - from, promptKeys + to];
    const first = Math.max(weights, token * (prompts + writing)) + key * (promptKeys + writtenKeys);
    const next = Math.max(weights, token * writing) + key * writtenKeys;
    const more = writing > 0 ? PAGE_TOKENS - 1 : 0;
    const alone = mapping + first + more * next;
    this.step = {
      left: alone,
      alone,
      begun: now,
      end: (stretch) => {
        this.times.add(prompts + writing, promptKeys + writtenKeys, first * stretch);
        for (let i = 0; i < more; i++) this.times.add(writing, writtenKeys, next * stretch);
        for (const [sequence, { from, to }] of taken) this.land(sequence, from, to);
      },
    };
  }

  private land(sequence: Running, from: number, to: number): void {
    // Who was preempted meanwhile begins again.
    if (!sequence.isRunning) return;
    this.computedTokens += to - from;
    sequence.computed = to;
    sequence.length = Math.max(sequence.length, to);
    this.publish(sequence);
    if (to < sequence.prompt + sequence.answer) return;
    this.running.splice(this.running.indexOf(sequence), 1);
    sequence.isRunning = false;
    this.drop(sequence);
    sequence.done();
  }
}

/** Lets whatever has settled go on. */
const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

export class Simulation {
  now = 0;
  private readonly models: readonly SimulatedModel[];
  private readonly timers: { readonly at: number; readonly run: () => void }[] = [];

  constructor(models: readonly SimulatedModel[]) {
    this.models = models;
  }

  after(seconds: number, run: () => void): void {
    this.timers.push({ at: this.now + seconds, run });
    this.timers.sort((a, b) => a.at - b.at);
  }

  /** Until nothing is left to do. Steps of several models share the device evenly. `report`: after each event. */
  async run(report: (model: SimulatedModel) => Promise<void> | undefined): Promise<void> {
    for (;;) {
      for (const model of this.models) {
        if (model.step !== undefined) continue;
        model.begin(this.now);
        const moving = report(model);
        if (moving !== undefined) {
          await settle();
          for (const each of this.models) if (each.step === undefined) each.begin(this.now);
          await settle();
        }
      }
      const active = this.models.filter(({ step }) => step !== undefined);
      const timer = this.timers[0];
      if (active.length === 0) {
        if (timer === undefined) {
          if (this.models.every(({ isIdle }) => isIdle)) return;
          throw new Error('The simulation has left requests behind.');
        }
        this.now = timer.at;
      } else {
        const least = Math.min(...active.map(({ step }) => step!.left)) * active.length;
        const passed = Math.min(least, timer === undefined ? Infinity : timer.at - this.now);
        this.now += passed;
        for (const { step } of active) step!.left -= passed / active.length;
      }
      while (this.timers[0] !== undefined && this.timers[0].at <= this.now) this.timers.shift()!.run();
      for (const model of active) {
        const step = model.step!;
        if (step.left > 1e-12) continue;
        model.step = undefined;
        step.end((this.now - step.begun) / step.alone);
      }
    }
  }
}
