/** Contractions on Hopper's tensor cores: TMA and mbarriers feed warp-specialized wgmma in persistent blocks. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { ContractionKernel } from '../../../ir/kernel.js';
import { shrinkingFirstPrologue, shrinkingKernel } from '../adapter/shrinkers.js';
import { adapterOf, expertsOf } from '../text/contraction.js';
import { type CudaOperands, type EmittedCuda, kernelHead, mapNames } from '../text/operands.js';
import { aboutKernel, callText, unitText } from '../text/unit.js';
import { wgmmaContext, type WgmmaContext } from './config.js';
import { sharedTiles, TAKEN } from './takenTiles.js';
import { finishFunctor, hopperPrologue, hopperSegment } from './functors.js';
import { blockThreads } from './instruction.js';
import { maxColumnTiles } from './layout.js';
import { tensorMapsOf } from './tensorMaps.js';

export { isLegalWgmma, shrinkingFirst } from './legality.js';
export type { WgmmaFacts } from './legality.js';
export { defaultWgmmaSchedule, waveEfficiency, wgmmaCandidates } from './candidates.js';

/**
 * Prints `kernel` under a wgmma schedule as a unit of gemm/hopper.cuh. The schedule must be legal (isLegalWgmma).
 * Weights are read before the kernel waits for its predecessor in the stream, so no kernel of a plan may write them.
 */
export function emitWgmma(
  kernel: ContractionKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
  symbol: string,
): EmittedCuda {
  const context = wgmmaContext(kernel, operands, schedule);
  const { options, segments, config } = context;
  const threads = blockThreads(options.epilogueGroups);
  const tensorMaps = tensorMapsOf({
    ...context,
    options: { tm: schedule.tm, cluster: schedule.cluster, remainderTn: config.remainderN, boxRows: options.boxRows },
  });
  // No __restrict__: the compiler would move every load of an epilogue before its first store and spill accumulators.
  // The epilogue's text already has its loads in the right places.
  const head = kernelHead({
    symbol,
    extents: operands.extents,
    operands,
    tensorMaps,
    threads,
    isRestrict: false,
  });
  return {
    source: unitOf(context, head, mapNames(operands, tensorMaps)),
    tensorMaps,
    waitsForPredecessor: true,
    launch: {
      threads,
      sharedBytes: config.sharedBytes,
      cluster: config.cluster,
      gridX: {
        kind: 'persistent',
        extent: kernel.rows,
        // Each expert may have a tile that is not full: how many there are is known on the device only.
        per: config.experts === 0 ? schedule.tm * schedule.cluster : 1,
        times: maxColumnTiles(segments, schedule) * config.cluster,
        blocksPerMultiprocessor: 1,
      },
      gridY: { kind: 'constant', count: 1 },
    },
  };
}

function unitOf(context: WgmmaContext, head: string, maps: readonly string[]): string {
  const { kernel, operands, schedule, segments, finish, config } = context;
  const epilogues = segments.map((segment) => hopperSegment(context, segment));
  const [prologue, finishing] = [hopperPrologue(context), finishFunctor(context)];
  const shrinking = shrinkingKernel(kernel, schedule);
  const first = shrinking && shrinkingFirstPrologue(shrinking, operands, prologue);
  const { tm, tn, tk, stages, mode, cluster } = schedule;
  const experts = expertsOf(kernel);
  const functions = [finish?.functions ?? '', experts === undefined ? '' : TAKEN];
  const given = [
    kernel.rows,
    'memory',
    mapsText(context, maps),
    experts === undefined ? 'SharedTiles{}' : sharedTiles(experts, operands),
    first?.instance ?? prologue.instance,
    finishing.instance,
    ...epilogues.map(({ instance }) => instance),
  ];
  const type = operands.get(kernel.a).dtype;
  return unitText({
    about: aboutKernel(kernel, `${tm} × ${tn} × ${tk} by wgmma, ${mode}, ${stages} stages, clusters of ${cluster}`),
    includes: ['gemm/hopper.cuh', ...(kernel.anchor === 'gemm' ? [] : ['head/rows.cuh'])],
    config: { type: 'HopperConfig', fields: config },
    functors: [...functions, first?.state ?? '', prologue.text, ...epilogues.map(({ text }) => text), finishing.text],
    head,
    body: `  TW_DYNAMIC_SHARED(memory, 1024);\n  ${callText(`hopper_gemm<config, ${type}>`, given)}`,
  });
}

/** The maps of tensorMapsOf, which have these names, as the struct of gemm/hopper.cuh. */
function mapsText({ kernel, operands, segments, config }: WgmmaContext, names: readonly string[]): string {
  const left = names.map((name) => `&${name}`);
  const take = (): string => left.shift()!;
  const hasRemainder = config.remainderN > 0;
  const [a, weights] = [take(), segments.map(take)];
  const text = `${a}, { ${weights.join(', ')} }, ${hasRemainder ? take() : 'nullptr'}`;
  const adapter = adapterOf(kernel);
  if (adapter === undefined) return `HopperMaps{ ${text} }`;
  const shrunk = take();
  const seconds = segments.map((segment) => (segment.adapter === undefined ? 'nullptr' : take()));
  const remainder = hasRemainder && segments.at(-1)!.adapter !== undefined ? take() : 'nullptr';
  const slots = operands.base(operands.get(adapter.slot));
  return `HopperMaps{ ${text}, ${shrunk}, { ${seconds.join(', ')} }, ${remainder}, ${slots} }`;
}
