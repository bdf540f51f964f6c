/** Calls through the stages of a CPU: threads that work at once, in the order that StageFlow keeps. */
import { defined } from '../../system/defined.js';
import type { DeviceSpan } from '../call.js';
import { floatWrites, nameOf } from '../runtimePlan.js';
import type { NonFinitePlace, Readiness, StageAnswer, StageCall, StageRunner } from '../stageRunner.js';
import type { RunResult } from '../nativeProgram.js';
import type { CpuStage } from './stage.js';
import { StageFlow } from './stageFlow.js';

/** Number of calls that keep one stage busy: one is computed while another waits. */
const IN_FLIGHT_A_STAGE = 2;

const now = (): number => performance.timeOrigin + performance.now();

export class CpuStages implements StageRunner {
  readonly inFlight: number;
  readonly readiness?: Readiness;
  private readonly stages: readonly CpuStage[];
  private readonly flow: StageFlow;
  private readonly releaseAll: () => Promise<void>;

  /**
   * `release` gives back the stages and the resources that they share. Without `readiness`, every bucket is bound on
   * every stage.
   */
  constructor(stages: readonly CpuStage[], arenas: number, release: () => Promise<void>, readiness?: Readiness) {
    if (readiness !== undefined) this.readiness = readiness;
    this.stages = stages;
    this.inFlight = IN_FLIGHT_A_STAGE * stages.length;
    this.flow = new StageFlow(stages.length, arenas);
    this.releaseAll = release;
  }

  async run(call: StageCall): Promise<StageAnswer> {
    const results: RunResult[] = [];
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

  private firstNonFinite({ fn }: StageCall, results: readonly RunResult[]): NonFinitePlace | undefined {
    const stage = results.findIndex(({ nonFinite }) => nonFinite !== undefined);
    const found = results[stage]?.nonFinite;
    if (found === undefined) return undefined;
    const launch = this.stages[stage]!.ranges[nameOf(fn)]!.first + found.launch;
    const { buffer } = floatWrites(fn)[launch]![found.write]!;
    return { launch, buffer, row: found.row, column: found.column };
  }
}
