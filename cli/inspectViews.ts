/** What `tilewright inspect` shows: each view of a compiled model as data and as text. */
import { findStage, inspect as inspectModel, type Inspection, parameterCount, stageSize } from '../commands/inspect.js';
import {
  bucketFor,
  type KernelRow,
  kernelRows,
  kernelSource,
  memoryReport,
  type MemoryReport,
  timedRows,
  typicalSize,
} from '../commands/inspectKernels.js';
import { stageText } from '../driver/compile/compile.js';
import { placeAnywhere } from '../driver/devices/placement.js';
import { isArtifact } from '../driver/names.js';
import { detectMachine } from '../driver/targets/cpuDevice.js';
import type { CompiledModel } from '../driver/targets/target.js';
import { UsageError } from '../errors.js';
import { extentIn } from '../ir/extents.js';
import { leadingExtent } from '../ir/plan.js';
import { rowsIn, tokensIn } from '../ir/scoring.js';
import { printPlacement } from '../passes/placeStages.js';
import { defined } from '../system/defined.js';
import { quoteForShell } from '../system/process.js';
import { bytes, count, counted, textTable } from '../system/text.js';
import {
  describeDecoded,
  describeDiff,
  describeKernels,
  describeMemory,
  describeNarrow,
  describePlan,
  describeQuantized,
  describeSize,
  describeSource,
  describeStages,
  describeUnrecognized,
  stageDiff,
  sum,
} from './inspectText.js';
import { type Io, styleFor } from './io.js';
import { artifactFlags, INSPECT_MASKS, modelFlags, parallelism, refuseCompileFlags } from './modelFlags.js';
import { type Flags, isSet, text, wholeNumber } from './options.js';
import { noteLine, printText } from './print.js';
import { type Context, printJson } from './work.js';

const VIEWS = ['passes', 'pass', 'diff', 'kernels', 'kernel', 'plan', 'memory', 'parallel'] as const;
/** What a view needs beside its name. */
const NEEDS: Readonly<Partial<Record<(typeof VIEWS)[number], string>>> = {
  pass: ' NAME',
  diff: ' NAME',
  kernel: ' NAME',
  parallel: ' pp=2',
};

/** Flags that say what is compiled, so that every view of a model needs them. */
const CARRIED = [
  'init',
  'target',
  'precision',
  'quantize',
  'kvCache',
  'isa',
  'batchTokens',
  'mask',
  'cacheTokens',
  'draft',
  'checkpoint',
] as const;

/** The command that was typed, without a view. */
const repeated = (model: string, flags: Flags, { invocation }: Io): string =>
  [
    `${invocation} inspect ${quoteForShell(model)}`,
    ...CARRIED.flatMap((name) => {
      const value = text(flags, name);
      const flag = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
      return value === undefined ? [] : [`--${flag} ${quoteForShell(value)}`];
    }),
  ].join(' ');

/** Compiles the model, or reads the artifact, and prints the view that the flags ask for. */
export async function inspect(context: Context, model: string, flags: Flags): Promise<void> {
  const { io } = context;
  const views = VIEWS.filter((view) => flags[view] !== undefined);
  if (views.length > 1)
    throw new UsageError(
      `${views.map((view) => `--${view}`).join(' and ')}: one at a time`,
      `for example: tilewright inspect ${model} --${views[0]!}${NEEDS[views[0]!] ?? ''}`,
    );
  if (isSet(flags, 'headers') && views[0] !== 'kernel')
    throw new UsageError('--headers is of one kernel', 'for example: --kernel layers.0.ffn.down --headers');
  const wanted = modelFlags(flags, INSPECT_MASKS);
  if (isArtifact(model)) refuseCompileFlags(flags, model);
  const draftModel = text(flags, 'draft');
  if (draftModel !== undefined && (isArtifact(model) || text(flags, 'cacheTokens') === undefined))
    throw new UsageError(
      '--draft: is of a checkpoint that keeps keys and values',
      'give the checkpoint, and --cache-tokens 4096',
    );
  const { dump: _, ...request } = { model, ...wanted, ...artifactFlags(flags, model), ...defined({ draftModel }) };
  const inspection = await inspectModel(request);
  const { plan } = inspection;
  const given = text(flags, 'tokens');
  const tokens =
    given === undefined ? tokensIn(plan.capacity) : wholeNumber('--tokens', given, 1, tokensIn(plan.capacity), '256');
  const [data, words] = await view(inspection, views[0], flags, tokens, io);
  if (isSet(flags, 'json')) printJson(io, data());
  // The lines of a difference are painted.
  else if (views[0] === 'diff') io.stdout.write(words());
  else printText(io, words());
}

/** The view as data and as text, each made when asked for. */
async function view(
  inspection: Inspection,
  name: (typeof VIEWS)[number] | undefined,
  flags: Flags,
  tokens: number,
  io: Io,
): Promise<readonly [() => unknown, () => string]> {
  const { plan, stages } = inspection;
  const width = io.stdout.columns ?? 200;
  const size = typicalSize(tokens);
  const rows = () => kernelRows(plan, size);
  const memory = () => memoryReport(plan, inspection.checkpoint, inspection.model.cacheTokens);
  switch (name) {
    case 'passes':
      return [
        () =>
          stages.map((stage) => ({
            name: stage.name,
            [stage.level === 'graph' ? 'ops' : 'kernels']: stageSize(stage),
            changed: stage.changed,
            reason: stage.reason,
          })),
        () => `${[...describeStages(stages), '', ...describeUnrecognized(inspection)].join('\n')}\n`,
      ];
    case 'pass': {
      const stage = findStage(inspection, text(flags, 'pass') ?? '');
      const printed = stageText(stage);
      return [() => ({ name: stage.name, reason: stage.reason, [stage.level]: printed }), () => printed];
    }
    case 'diff': {
      const diff = stageDiff(inspection, text(flags, 'diff') ?? '');
      return [() => diff, () => describeDiff(diff, styleFor(io, 'stdout'))];
    }
    case 'kernels': {
      const { database } = flags;
      const timed = await timedRows(inspection.model, detectMachine(), size, {
        database: typeof database === 'string' ? database : undefined,
      });
      return [
        () => ({ size, peaks: timed.peaks, bucket: timed.bucket, kernels: timed.rows }),
        () => describeKernels({ ...timed, tokens: tokensIn(size), scored: rowsIn(size) }),
      ];
    }
    case 'kernel': {
      const source = await kernelSource(inspection.model, text(flags, 'kernel') ?? '', tokens);
      return [() => source, () => describeSource(source, isSet(flags, 'headers'))];
    }
    case 'plan':
      return [
        () => ({
          launches: plan.launches,
          buckets: plan.buckets,
          schedules: plan.schedules,
          bucketOfTokens: bucketFor(plan, tokens).index,
        }),
        () => describePlan(plan, inspection.model, rows()),
      ];
    case 'memory':
      return [memory, () => describeMemory(memory(), width)];
    case 'parallel': {
      const wanted = parallelism(text(flags, 'parallel') ?? '');
      if (wanted === 'auto')
        throw new UsageError(
          '--parallel auto is what run decides by the devices that it finds',
          'say how many: --parallel pp=4',
        );
      const placed = placeAnywhere(inspection.model, wanted);
      return [() => placed, () => `${printPlacement(placed, plan).join('\n')}\n`];
    }
    case undefined:
      return [
        () => summary(inspection, rows().length),
        () => describeSummary(inspection, rows(), memory(), repeated(inspection.request.model, flags, io)),
      ];
    default:
      return name satisfies never;
  }
}

function summary(inspection: Inspection, kernels: number): unknown {
  const { plan, checkpoint, config, isa, arithmetic, stages, notes } = inspection;
  const { weights, arenaBytes } = memoryReport(plan, checkpoint);
  return {
    model: inspection.request.model,
    isArtifact: inspection.isArtifact,
    isTuned: inspection.isTuned,
    contents: inspection.contents,
    config,
    isa,
    arithmetic,
    parameters: checkpoint === undefined ? undefined : parameterCount(checkpoint),
    kernels,
    distinctKernels: new Set(plan.launches.map(({ signature }) => signature)).size,
    arenaBytes,
    weights,
    capacity: plan.capacity,
    buckets: plan.buckets,
    bucketsOf: Object.fromEntries(
      inspection.model.plan.functions.map(({ interface: { name }, buckets }) => [name, buckets]),
    ),
    passes: stages.map(({ name }) => name),
    unrecognized: inspection.unrecognized,
    notes,
  };
}

const WEIGHTS = {
  sampled:
    'known by configuration, headers, sizes and samples of every tensor; not every byte (compile --hash-weights)',
  hashed: 'known by hashes of all bytes, which --verify compares; every run compares samples',
  verified: 'all bytes compared now: they are those that were compiled',
} as const;

/** What an artifact holds beside its plan, and what of it must be trusted. */
function describeContents({ contents }: Inspection): [string, string][] {
  if (contents === undefined) return [];
  const { isPacked, weights, code } = contents;
  return [
    ['checkpoint', isPacked ? 'inside the artifact' : 'outside, where it was compiled or --checkpoint says'],
    ['', WEIGHTS[weights]],
    [
      'machine code',
      code === undefined
        ? 'none: a host needs a compiler'
        : `${bytes(code.codeBytes)} for ${code.machine}, kernel ABI ${code.abi}, by ${code.compiler}`,
    ],
    ...(code === undefined
      ? []
      : ([['', 'runs only with --trust-code; hashes show damage, not who made it']] as const)),
  ].map(([name = '', value = '']): [string, string] => [name, value]);
}

/** Sizes of calls, in tokens or rows, that each function has schedules for. */
function describeBuckets({ plan }: CompiledModel): readonly (readonly [string, string])[] {
  const ofEach = plan.functions.map((fn) => {
    const { buckets } = fn;
    const { name } = fn.interface;
    const leading = leadingExtent(fn).name;
    const sizes = [...new Set(buckets.map(({ extents }) => extentIn(leading, extents)))].join(', ');
    return plan.functions.length === 1 ? sizes : `${name}: ${sizes}`;
  });
  return ofEach.map((text, i) => [i === 0 ? 'buckets' : '', text]);
}

/** How many kernels layers have: `5 a layer`, or `5 to 9 a layer` where they differ. */
function describePlaces(rows: readonly KernelRow[]): string {
  const layers = new Map<string, number>();
  for (const { path } of rows) {
    const layer = /^layers\.\d+\./.exec(path)?.[0];
    if (layer !== undefined) layers.set(layer, (layers.get(layer) ?? 0) + 1);
  }
  const counts = [...layers.values()];
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  const each = least === most ? String(least) : `${least} to ${most}`;
  return counts.length === 0 ? '' : `: ${each} a layer, and ${counted(rows.length - sum(counts, (n) => n), 'other')}`;
}

/** One screen. `command`: what was typed, for the views that it names. */
export function describeSummary(
  inspection: Inspection,
  rows: readonly KernelRow[],
  memory: MemoryReport,
  command: string,
): string {
  const { request, config, checkpoint, isa, arithmetic, stages, notes } = inspection;
  const kind = inspection.isArtifact
    ? `artifact, ${inspection.isTuned ? 'tuned' : 'not tuned'}`
    : request.init.kind === 'random'
      ? 'made-up weights'
      : 'checkpoint';
  const shape =
    config === undefined || checkpoint === undefined
      ? []
      : [
          ['shape', checkpoint.model.summary],
          [
            '',
            `vocabulary ${count(config.vocabSize)}, context ${count(config.maxPositions)}, stored as ${config.dtype}`,
          ],
        ];
  const weights =
    memory.weights === undefined
      ? 'unknown without the checkpoint'
      : `${bytes(memory.weights.packedBytes)} packed, ${bytes(memory.weights.mappedBytes)} mapped`;
  const table = textTable([
    ['model', `${request.model} (${kind})`],
    ...(checkpoint === undefined ? [] : [['parameters', count(parameterCount(checkpoint))]]),
    ...shape,
    ...(checkpoint === undefined ? [] : describeQuantized(checkpoint)),
    [
      'target',
      `${isa.startsWith(inspection.model.target.name) ? '' : `${inspection.model.target.name}, `}${isa}, ` +
        `${arithmetic} inputs, f32 accumulation`,
    ],
    ...(checkpoint === undefined ? [] : describeDecoded(checkpoint, inspection.arithmetic)),
    ...describeNarrow(inspection.plan.weights),
    [
      'kernels',
      `${rows.length}${describePlaces(rows)}; ` +
        `${new Set(rows.map(({ signature }) => signature)).size} different sources`,
    ],
    [
      'arena',
      `${bytes(memory.arenaBytes)} for micro-batches of up to ${count(memory.capacity.most)} ${memory.capacity.counts}`,
    ],
    ...(memory.states.length === 0
      ? []
      : [['states', `${bytes(sum(memory.states, ({ sizeBytes }) => sizeBytes))}, kept from call to call`]]),
    ['weights', weights],
    ...describeContents(inspection),
    ...describeBuckets(inspection.model),
    ['passes', `${stages.length} stages, from ${describeSize(stages[0]!)} to ${describeSize(stages.at(-1)!)}`],
    ['', describeUnrecognized(inspection).join('; ')],
  ]);
  const example = rows.find(({ anchor }) => anchor === 'gemm') ?? rows[0];
  const more = [
    'More:',
    ...textTable([
      [`  ${command} --passes`, 'the passes, in order, with reasons'],
      [`  ${command} --pass recognizeAttention`, 'the graph after one of them'],
      [`  ${command} --diff recognizeAttention`, 'what it changed'],
      [`  ${command} --kernels`, 'what was fused, and what it costs'],
      [`  ${command} --kernel ${example?.path ?? 'NAME'}`, 'generated source'],
      [`  ${command} --plan`, 'launches and schedules'],
      [`  ${command} --memory`, 'the arena over time'],
    ]),
  ];
  return `${[...table, ...notes.map(noteLine), '', ...more].join('\n')}\n`;
}
