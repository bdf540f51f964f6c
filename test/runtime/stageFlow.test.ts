/** The order of micro-batches through stages, with steps that end in every order that the rules allow. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { StageFlow } from '../../runtime/cpu/stageRunner.js';

/** Stages whose arenas remember whose values they hold. Every broken rule is recorded. */
class World {
  readonly broken: string[] = [];
  readonly finished: number[] = [];
  /** The most stages that computed at once. */
  most = 0;
  private readonly holds: (number | undefined)[][];
  private readonly busy: (number | undefined)[];
  private readonly flow: StageFlow;
  private readonly stages: number;
  private readonly work: (batch: number, stage: number) => Promise<void>;
  private readonly fails: (batch: number, stage: number) => boolean;
  /** For each stage, micro-batches in the order in which it computed them. */
  readonly order: number[][];

  constructor(
    stages: number,
    work: (batch: number, stage: number) => Promise<void>,
    fails: (batch: number, stage: number) => boolean,
  ) {
    this.stages = stages;
    this.work = work;
    this.fails = fails;
    this.flow = new StageFlow(stages, stages === 1 ? 1 : 2);
    this.holds = Array.from({ length: stages }, () => [undefined, undefined]);
    this.busy = Array.from({ length: stages }, () => undefined);
    this.order = this.busy.map(() => []);
  }

  async score(batch: number): Promise<void> {
    const note = (isGood: boolean, what: string): void => {
      if (!isGood) this.broken.push(`micro-batch ${batch}: ${what}`);
    };
    await this.flow.run({
      compute: async (stage, arena) => {
        const arenas = this.holds[stage]!;
        if (stage === 0) arenas[arena] = batch;
        note(arenas[arena] === batch, `stage ${stage} finds ${arenas[arena]}`);
        note(this.busy[stage] === undefined, `stage ${stage} computes ${this.busy[stage]} yet`);
        this.busy[stage] = batch;
        this.order[stage]!.push(batch);
        this.most = Math.max(this.most, this.busy.filter((each) => each !== undefined).length);
        await this.work(batch, stage);
        this.busy[stage] = undefined;
        note(arenas[arena] === batch, `stage ${stage} was overwritten by ${arenas[arena]} while it computed`);
        if (this.fails(batch, stage)) throw new Error(`micro-batch ${batch} fails in stage ${stage}`);
      },
      send: (stage, arena) => {
        note(this.holds[stage]![arena] === batch, `stage ${stage} would send ${this.holds[stage]![arena]}`);
        note(
          this.busy[stage + 1] !== this.holds[stage + 1]![arena] || this.busy[stage + 1] === undefined,
          `stage ${stage} sends into what stage ${stage + 1} computes`,
        );
        this.holds[stage + 1]![arena] = batch;
      },
    });
    note(this.order[this.stages - 1]!.includes(batch), 'was not computed by the last stage');
    this.finished.push(batch);
  }

  idle(): Promise<void> {
    return this.flow.idle();
  }
}

describe('StageFlow', () => {
  it('keeps the order, overwrites nothing that is needed, and lets a micro-batch that fails end alone', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 4 }),
        fc.array(fc.option(fc.nat({ max: 3 }), { freq: 6 }), { minLength: 1, maxLength: 12 }),
        fc.scheduler(),
        async (stages, failsIn, scheduler) => {
          const failing = (batch: number): number | undefined => {
            const stage = failsIn[batch] ?? stages;
            return stage < stages ? stage : undefined;
          };
          const world = new World(
            stages,
            (batch, stage) => scheduler.schedule(Promise.resolve(), `${batch} in ${stage}`),
            (batch, stage) => failing(batch) === stage,
          );
          const [outcomes] = await scheduler.waitFor(
            Promise.all([Promise.allSettled(failsIn.map((_, batch) => world.score(batch))), world.idle()]),
          );
          await scheduler.waitFor(world.idle());
          expect(world.broken).toEqual([]);
          const good = failsIn.flatMap((_, batch) => (failing(batch) === undefined ? [batch] : []));
          expect(world.finished).toEqual(good);
          outcomes.forEach((outcome, batch) => {
            const stage = failing(batch);
            expect(outcome.status).toBe(stage === undefined ? 'fulfilled' : 'rejected');
            if (outcome.status === 'rejected')
              expect(String(outcome.reason)).toContain(`micro-batch ${batch} fails in stage ${stage}`);
          });
          world.order.forEach((computed, stage) =>
            expect(computed).toEqual(failsIn.flatMap((_, batch) => ((failing(batch) ?? 9) >= stage ? [batch] : []))),
          );
        },
      ),
      { numRuns: 300 },
    );
  });

  it('lets every stage compute at once', async () => {
    // On the diagonal where each stage has a micro-batch, none ends before all four compute.
    let isFull = (): void => undefined;
    const full = new Promise<void>((resolve) => {
      isFull = resolve;
    });
    const world: World = new World(
      4,
      (batch, stage) => {
        if (world.most === 4) isFull();
        return batch + stage < 3 ? Promise.resolve() : full;
      },
      () => false,
    );
    await Promise.all(Array.from({ length: 8 }, (_, batch) => world.score(batch)));
    expect(world.broken).toEqual([]);
    expect(world.most).toBe(4);
  });
});
