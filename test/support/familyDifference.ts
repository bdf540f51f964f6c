/** A family's model in kernels, generated or interpreted, against its graph in float64 before any pass. */
import { defaultSchedule, isLegal } from '../../codegen/cpu/index.js';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import { interpretModule, type RawTensor } from '../../ir/kernelInterpreter.js';
import type { CpuIsa } from '../../ir/plan.js';
import { roundToDType } from '../../ir/round.js';
import { scoringBucket } from '../../ir/scoring.js';
import { describeModel } from '../../models/config.js';
import type { Json } from '../../models/model/model.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { runGenerated } from '../codegen/harness.js';
import { Dice } from './families.js';
import { randomTrees } from './familyTrees.js';

const F32: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };
const BF16: Numerics = { activations: 'bf16', weights: { layout: 'vnni', format: 'bf16' } };

export interface Difference {
  /** Largest difference of a log-probability, over 1 + |it|. */
  readonly logProb: number;
  /** Rows whose most likely token is another. */
  readonly isArgmax: number;
  readonly rows: number;
}

/**
 * `isa`: generated code for it; absent: kernel IR as the interpreter has it, with exact sums. AMX computes in bf16: its
 * code is compared with kernel IR that rounds where it does, since other experts may be chosen in float64.
 */
export function familyDifference(json: Json, seed: number, isa?: CpuIsa): Difference {
  const model = describeModel(json, 'config.json', 'bf16');
  const graph = model.graph({ mask: 'tree', dtypeOf: () => 'bf16' });
  const dice = new Dice(seed);
  const tensors = new Map<string, RawTensor>();
  for (const { name, type } of graph.weights) {
    const [first, second] = type.shape as readonly number[];
    const isBias = name.endsWith('.bias');
    const [rows, columns] = second !== undefined ? [first!, second] : isBias ? [first!, 1] : [1, first!];
    // Norm weights around 1; matrices whose products neither vanish nor explode.
    const [middle, spread] = second === undefined ? [isBias ? 0 : 1, 0.4] : [0, 2.5 / Math.sqrt(columns)];
    const next = (): number => roundToDType(middle + spread * (2 * dice.next() - 1), 'bf16');
    tensors.set(name, { rows, columns, data: Float64Array.from({ length: rows * columns }, next) });
  }
  const tokens = 24;
  const inputs = randomTrees(seed, tokens, model.config.vocabSize);
  const sizes = { T: tokens, R: inputs.row.length };
  const params = new Map(Object.entries(inputs).map(([name, values]) => [name, Float64Array.from(values)]));
  const weights = new Map([...tensors].map(([name, { data }]) => [name, data]));
  // Half of the targets are the most likely tokens.
  interpretGraph(graph, {
    ...{ sizes, tensors, weights, params },
    trace: (node, { data }) => {
      if (node.op !== 'argmax') return;
      const target = params.get('target')!;
      inputs.row.forEach((row, i) => (target[i] = i % 2 === 0 ? target[i]! : data[row]!));
    },
  });
  const [logProb, isArgmax] = interpretGraph(graph, { sizes, weights, params });

  const numerics = isa === 'amx' ? BF16 : F32;
  const optimized = optimize(graph, numerics);
  const module = lower(optimized, numerics);
  // Vectors are tables of a loop, or factors of columns of a matrix.
  const vectors = new Set(graph.weights.filter(({ type }) => type.shape.length === 1).map(({ name }) => name));
  const tables = new Set(module.weights.flatMap(({ sources }) => sources.map(({ tensor }) => tensor)));
  for (const [name, { rows, columns, data }] of tensors)
    if (rows === 1 && vectors.has(name) && tables.has(name)) tensors.set(name, { rows: columns, columns: 1, data });
  const own = new Map(optimized.params.map(({ name }) => [name.toLowerCase(), name]));
  const buffers = new Map(
    module.buffers
      .filter(({ space }) => space === 'input')
      .map(({ name }) => [name, params.get(own.get(name.replaceAll('_', '').toLowerCase())!)!]),
  );
  for (const { name, values } of module.constants)
    tensors.set(name, { rows: values.length, columns: 1, data: Float64Array.from(values) });
  const isas = isa === 'amx' ? (['portable', 'avx512', 'amx'] as const) : isa === undefined ? [] : [isa];
  const facts = { isas, l1: 32768, l2: 1 << 20 };
  const values = (): ReadonlyMap<string, Float64Array> => {
    if (isa === undefined) return interpretModule(module, { sizes, buffers, tensors, round: false });
    const bucket = scoringBucket({ tokens, rows: inputs.row.length, longest: tokens });
    const schedules = module.kernels.map((kernel) => defaultSchedule(kernel, module, facts, bucket));
    module.kernels.forEach((kernel, i) => {
      if (!isLegal(kernel, module, schedules[i]!, facts)) throw new Error(`${kernel.name}: no legal schedule`);
    });
    const run = runGenerated(module, { sizes, inputs: buffers, tensors, schedules, workers: 2, isQuick: true });
    // Numbers of experts are read by count.
    const outside = [...run.dirtyPads.filter((name) => !name.startsWith('experts')), ...run.overruns];
    if (outside.length > 0) throw new Error(`wrote outside of ${outside.join(', ')}`);
    return run.values;
  };
  const got = values();
  const rounded = isa === 'amx' ? interpretModule(module, { sizes, buffers, tensors, round: true }) : undefined;
  const outputs = module.buffers.filter(({ space }) => space === 'output');
  const output = (dtype: string): Float64Array => got.get(outputs.find((buffer) => buffer.dtype === dtype)!.name)!;
  const name = outputs.find((buffer) => buffer.dtype === 'f32')!.name;
  const wanted = rounded?.get(name) ?? logProb!.data;
  const distance = output('f32').reduce((most, x, i) => {
    const d = Math.abs(x - wanted[i]!) / (1 + Math.abs(wanted[i]!));
    return Number.isNaN(d) ? Infinity : Math.max(most, d);
  }, 0);
  const flips = output('i32').reduce((count, x, i) => count + Number(x !== isArgmax!.data[i]!), 0);
  return { logProb: distance, isArgmax: flips, rows: inputs.row.length };
}
