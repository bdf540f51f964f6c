/**
 * The order in which micro-batches flow through the stages of a pipeline: the same rules as events keep between GPUs.
 */

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
