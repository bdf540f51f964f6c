/** `tilewright explore`: a compilation as a page. Reads no weights; compiles nothing unless asked. */
import { statSync } from 'node:fs';
import { type Peaks, ratesOf } from '../autotune/peaks.js';
import { settleTarget } from '../driver/devices/chooseTarget.js';
import { modelName } from '../driver/names.js';
import type { WithTargetChoice } from '../driver/precision.js';
import { VERSION } from '../driver/program.js';
import { detectMachine, type Machine } from '../driver/targets/cpuDevice.js';
import { UsageError } from '../errors.js';
import { linkFunction } from '../ir/plan.js';
import { NEW_TOKENS } from '../ir/stepping.js';
import { tokensIn } from '../ir/scoring.js';
import { exploreStages, Pool } from '../report/collect/stages.js';
import type { KernelsDocument, PassesDocument, Roofline, Unit } from '../report/document/explore.js';
import type { About } from '../report/document/sections.js';
import { writePage } from '../report/writePage.js';
import { bytes, count, si } from '../system/text.js';
import { prepareFile } from '../system/write.js';
import { followOps, functionKernels, type KernelOps, opsOfGroups } from './exploreKernels.js';
import { functionOf, type Inspection, inspectModel, type InspectRequest, parameterCount } from './inspect.js';
import { groupKernels, kernelRows, memoryReport, typicalSize } from './inspectKernels.js';

export interface ExploreRequest extends InspectRequest {
  readonly output: string;
  /** Tokens of a call, for costs and schedules. Default: the largest. */
  readonly tokens?: number;
  /** Records of the tuner. Default: where `tune` keeps them. */
  readonly database?: string;
  /** Whether kernels are compiled for their registers and spills. */
  readonly examines?: boolean;
}

/** What was written, as `explore --json` prints it. */
export interface Explored {
  readonly path: string;
  readonly bytes: number;
  readonly title: string;
  readonly functions: readonly { readonly name: string; readonly stages: number; readonly kernels: number }[];
  readonly notes: readonly string[];
}

export interface ExploreSections {
  readonly about: About;
  readonly passes: PassesDocument;
  readonly kernels: KernelsDocument;
}

/** The ops of a function's kernels after its last pass. */
function opsAtEnd(stages: Inspection['stages']): KernelOps {
  let ops: KernelOps = new Map();
  let last: Parameters<typeof followOps>[1] | undefined;
  for (const stage of stages) {
    if (stage.level !== 'kernels') continue;
    ops =
      stage.groups !== undefined || last === undefined
        ? opsOfGroups(stage.module, stage.groups ?? [])
        : followOps(ops, last, stage.module);
    last = stage.module;
  }
  return ops;
}

/** The peaks that times are compared with, as text too. */
function rooflineOf({ isa }: Pick<Inspection, 'isa'>, peaks: Peaks): Roofline {
  const says = ({ perSecond, source }: Peaks['memory'], unit: string): string => `${si(perSecond, unit)} (${source})`;
  return {
    name: `${isa}, ${says(peaks.arithmetic, 'FLOP/s')} and ${says(peaks.memory, 'B/s')}`,
    ...ratesOf(peaks),
  };
}

/** The sections of the page. Throws UserError. */
export async function collectExplored(
  request: Omit<ExploreRequest, 'output'>,
  machine: Machine = detectMachine(),
): Promise<ExploreSections> {
  const inspection = await inspectModel(request, machine);
  const { model, stages, notes, plan: score } = inspection;
  if (request.examines === true && model.target.compiler.examine === undefined)
    throw new UsageError(
      `no compiler says what kernels for ${model.isa} take: their registers cannot be asked for`,
      'leave that out, or explore a GPU: --target cuda:sm_90a',
    );
  const times = await model.target.tuner.times(model, machine, { database: request.database });
  const roofline = rooflineOf(inspection, times.peaks);
  const most = tokensIn(score.capacity);
  const { tokens = most } = request;
  if (tokens > most)
    throw new UsageError(`a call of ${tokens} tokens: this model takes ${most} at most`, `ask for ${most} or fewer`);
  const [units, texts] = [new Pool<Unit>(), new Pool<string>()];
  const passes: PassesDocument['functions'][number][] = [];
  const functions: KernelsDocument['functions'][number][] = [];
  for (const { interface: declared } of model.plan.functions) {
    const { name } = declared;
    // What only moves rows has no tokens to be timed with.
    if (!declared.extents.some((extent) => extent.name === NEW_TOKENS)) continue;
    const plan = linkFunction(model.plan, name);
    const own = stages.filter((stage) => functionOf(stage) === name);
    const end = own.at(-1);
    const ops = opsAtEnd(own);
    const kernelAt = new Map<string, number>();
    const opAt = new Map<string, number>();
    groupKernels(kernelRows(plan, typicalSize(1))).forEach(({ rows }, at) => {
      for (const row of rows) {
        kernelAt.set(row.name, at);
        for (const node of ops.get(row.name) ?? []) if (!opAt.has(node.result.name)) opAt.set(node.result.name, at);
      }
    });
    passes.push({
      name,
      stages: exploreStages(own, units, (of, level) => (level === 'graph' ? opAt : kernelAt).get(of)),
    });
    functions.push(
      await functionKernels(plan, {
        model,
        ops,
        tokens,
        times,
        texts,
        examines: request.examines === true,
        module: end?.level === 'kernels' ? end.module : undefined,
      }),
    );
  }
  const facts = factsOf(inspection);
  return {
    about: {
      title: `Compiling ${modelName(request.model)}`,
      subtitle: facts.find(([what]) => what === 'target')?.[1] ?? model.isa,
      writer: `tilewright ${VERSION}`,
      written: new Date().toISOString(),
      notes,
    },
    passes: { functions: passes, units: units.all },
    kernels: { facts, language: model.target.devices.isHost ? 'C' : 'CUDA', roofline, functions, texts: texts.all },
  };
}

/** Throws UserError for what cannot be compiled or written. */
export async function explore({ output, ...asked }: WithTargetChoice<ExploreRequest>): Promise<Explored> {
  const request = await settleTarget(asked);
  prepareFile(output);
  const { about, passes, kernels } = await collectExplored(request);
  writePage(output, {
    app: 'explore',
    title: about.title,
    blocks: [
      { name: 'about', content: about },
      { name: 'passes', content: passes },
      { name: 'kernels', content: kernels },
    ],
  });
  return {
    path: output,
    bytes: statSync(output).size,
    title: about.title,
    functions: passes.functions.map(({ name, stages }, i) => ({
      name,
      stages: stages.length,
      kernels: kernels.functions[i]!.kernels.reduce((sum, { count }) => sum + count, 0),
    })),
    notes: about.notes,
  };
}

export function factsOf(inspection: Inspection): readonly (readonly [string, string])[] {
  const { checkpoint, config, plan, model, isa, arithmetic, isArtifact, isTuned, request, unrecognized } = inspection;
  const { capacity, arenaBytes, states, weights } = memoryReport(plan, checkpoint, model.cacheTokens);
  const kind = isArtifact
    ? `artifact, ${isTuned ? 'tuned' : 'not tuned'}`
    : request.init.kind === 'random'
      ? 'made-up weights'
      : 'checkpoint';
  const distinct = new Set(plan.launches.map(({ signature }) => signature)).size;
  const kept = states.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  return [
    ['model', kind],
    ...(checkpoint === undefined
      ? []
      : ([
          ['parameters', count(parameterCount(checkpoint))],
          ['shape', checkpoint.model.summary],
        ] as const)),
    ...(config === undefined
      ? []
      : ([['vocabulary', `${count(config.vocabSize)}, context ${count(config.maxPositions)}`]] as const)),
    ['target', `${isa.startsWith(model.target.name) ? '' : `${model.target.name}, `}${isa}, ${arithmetic} inputs`],
    ['kernels', `${plan.kernels.length}, ${distinct} different texts`],
    ['arena', `${bytes(arenaBytes)} for up to ${count(capacity.most)} ${capacity.counts}`],
    ...(states.length === 0 ? [] : ([['states', `${bytes(kept)}, kept from call to call`]] as const)),
    ...(weights === undefined
      ? []
      : ([['weights', `${bytes(weights.packedBytes)} packed, ${bytes(weights.mappedBytes)} mapped`]] as const)),
    ['recognized', unrecognized.length === 0 ? 'every pattern' : `all but ${count(unrecognized.length)} patterns`],
  ];
}
