/** The pieces of a cut graph as kernels of the CPU target, in f32. All are compiled at once: most are alike. */
import { cpuScheduling } from '../../codegen/cpu/scheduling.js';
import type { Bucket, CpuSchedule, Plan } from '../../ir/plan.js';
import { lowerModule } from '../../passes/lowerModule.js';
import { optimize } from '../../passes/runPasses.js';
import { openCpuExecutor } from '../../runtime/cpu/openExecutor.js';
import type { TensorSource } from '../../runtime/tensorSource.js';
import { detectMachine, numericsOf } from '../machine.js';
import { planFunction } from '../planFunction.js';
import { stepTo, type Ui } from '../requests.js';
import { compileKernels, emitPlan, type EmittedPlan } from '../targets/cpuKernels.js';
import { cpuDevice } from '../targets/cpuModel.js';
import type { Executor } from '../executor.js';
import type { Piece } from './cutGraph.js';

export interface CompiledPieces {
  /** Opens piece `index` with weights as they are now. */
  readonly open: (index: number, tensors: ReadonlyMap<string, TensorSource>) => Promise<Executor>;
}

/** Compiles pieces for calls of at most `tokens` tokens, in texts of at most `longest`. */
export async function compilePieces(
  pieces: readonly Piece[],
  { tokens, longest, threads }: { readonly tokens: number; readonly longest: number; readonly threads: number },
  ui: Pick<Ui, 'phase' | 'step'>,
): Promise<CompiledPieces> {
  const device = cpuDevice(detectMachine(), 'f32');
  const numerics = numericsOf(device.isa);
  const capacity: Bucket = { extents: { T: tokens }, longest };
  const plans = pieces.map(({ graph }): Plan<CpuSchedule> => {
    const lowered = lowerModule({ name: graph.name, functions: [optimize(graph, numerics)] }, numerics);
    const [fn] = lowered.functions;
    return { ...lowered, functions: [planFunction(fn!, capacity, [capacity], cpuScheduling, device)] };
  });
  const emitted = plans.map(emitPlan);
  const sources = new Map(emitted.flatMap((each) => each.sources.map((source) => [source.name, source] as const)));
  const all: EmittedPlan = {
    sources: [...sources.values()],
    kernels: Object.assign({}, ...emitted.map(({ kernels }) => kernels)) as EmittedPlan['kernels'],
  };
  ui.phase('compile kernels', `${all.sources.length} different`);
  const { symbols } = await compileKernels(all, device.isa, {
    onProgress: ({ done, total }) => stepTo(ui, { done, total, unit: 'kernels' }),
  });
  return {
    open: (index, tensors) => {
      const { name } = pieces[index]!.graph;
      return openCpuExecutor({
        plan: plans[index]!,
        symbols: { [name]: symbols[name]! },
        tensors,
        threads,
        maxLength: longest,
      });
    },
  };
}
