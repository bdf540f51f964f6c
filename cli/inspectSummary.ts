/** The one screen that `inspect` prints without a flag. */
import { type Inspection, parameterCount } from '../commands/inspect.js';
import type { KernelRow } from '../commands/inspectKernels.js';
import type { MemoryReport } from '../commands/inspectMemory.js';
import type { CompiledModel } from '../driver/targets/target.js';
import { tokensIn } from '../ir/scoring.js';
import { bytes, count, counted, textTable } from '../system/text.js';
import { describeSize, describeUnrecognized, sum } from './inspectText.js';
import { describeDecoded, describeNarrow, describeQuantized } from './quantizedText.js';
import { noteLine } from './report.js';

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

/** Sizes of calls, in tokens, that each function has schedules for. */
function describeBuckets({ plan }: CompiledModel): readonly (readonly [string, string])[] {
  const ofEach = plan.functions.map(({ interface: { name }, buckets }) => {
    const sizes = [...new Set(buckets.map(tokensIn))].join(', ');
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
