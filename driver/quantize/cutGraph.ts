/**
 * A model's function cut into pieces, each of which computes the inputs of one group of matrices from what the piece
 * before it left. So every op is computed once, with matrices of earlier groups as they were quantized.
 */
import { cpuScheduling } from '../../codegen/cpu/schedules.js';
import { type Graph, GraphBuilder, loadTimeValues, type Node, uses, type Value } from '../../ir/graph/graph.js';
import type { Bucket, CpuSchedule, Plan } from '../../ir/plan.js';
import { lowerModule, optimize } from '../../passes/runPasses.js';
import { openCpuExecutor } from '../../runtime/cpu/openExecutor.js';
import type { TensorSource } from '../../runtime/tensorSource.js';
import { at } from '../../system/at.js';
import type { DeviceExecutor } from '../executor.js';
import { planFunction } from '../plan.js';
import { stepTo, type Ui } from '../requests.js';
import { cpuDevice, detectMachine, numericsOf } from '../targets/cpuDevice.js';
import { compileCpuKernels, CPU_PRINTING, type CpuPlanTexts, emitCpuPlan } from '../targets/cpuKernels.js';
import { printedPlan } from '../targets/printedKernels.js';

/** A function of the model's own parameters and of values that pieces before it computed. */
export interface GraphPiece {
  readonly graph: Graph;
  /** What it takes: values of the whole graph, by the names of its parameters. */
  readonly takes: ReadonlyMap<string, Value>;
  /** What it returns, by the names of its results. */
  readonly gives: ReadonlyMap<string, Value>;
  /** Values that nothing after it reads. */
  readonly drops: readonly Value[];
}

/**
 * Values that depend on parameters and on weights. The others are computed again where they are needed, and so are
 * rows of a table of weights, which no kernel stores as they are.
 */
function computedValues(graph: Graph): ReadonlySet<Value> {
  const loaded = loadTimeValues(graph);
  const fromParams = new Set<Value>(graph.params);
  const fromWeights = new Set<Value>(graph.weights);
  for (const node of graph.nodes) {
    if (node.op === 'gather_rows' && loaded.has(node.operands.x)) continue;
    if (node.inputs.some((v) => fromParams.has(v))) fromParams.add(node.result);
    if (node.inputs.some((v) => fromWeights.has(v))) fromWeights.add(node.result);
  }
  return new Set([...fromParams].filter((v) => fromWeights.has(v)));
}

/** Nodes that `wanted` needs, in order, where the values of `given` are there. */
function slice(graph: Graph, wanted: readonly Value[], given: ReadonlySet<Value>): readonly Node[] {
  const needed = new Set(wanted.filter((v) => !given.has(v)));
  const found: Node[] = [];
  for (const node of [...graph.nodes].reverse()) {
    if (!needed.has(node.result)) continue;
    found.push(node);
    for (const operand of node.inputs) if (!given.has(operand)) needed.add(operand);
  }
  return found.reverse();
}

/**
 * The pieces of `graph` for these values, each of which some product reads, in order of their first products. Throws
 * where a value between pieces is no matrix of f32.
 */
export function cutGraph(graph: Graph, values: readonly Value[]): readonly GraphPiece[] {
  const places = new Map(graph.nodes.map((node, i) => [node.result, i]));
  const readers = uses(graph);
  const indexOf = new Map(graph.nodes.map((node, i) => [node, i]));
  const computed = computedValues(graph);
  const cuts = values.map((value) =>
    Math.min(
      ...readers
        .get(value)!
        .filter(({ op }) => op === 'linear')
        .map((node) => indexOf.get(node)!),
    ),
  );
  const pieces: GraphPiece[] = [];
  let live = new Set<Value>();
  values.forEach((value, i) => {
    const cut = at(cuts, i);
    // What stands before the cut and is read behind it on the way to any of the values.
    const behind = slice(graph, values.slice(i), new Set()).filter((node) => indexOf.get(node)! >= cut);
    const crossing = behind
      .flatMap(({ inputs }) => inputs)
      .filter((v) => computed.has(v) && (places.get(v) ?? Infinity) < cut);
    const next = new Set([value, ...crossing]);
    const fresh = [...next].filter((v) => !live.has(v));
    pieces.push(
      buildPiece(
        graph,
        `piece_${i}`,
        live,
        fresh,
        [...live].filter((v) => !next.has(v)),
      ),
    );
    live = next;
  });
  return pieces;
}

function buildPiece(
  graph: Graph,
  name: string,
  live: ReadonlySet<Value>,
  wanted: readonly Value[],
  drops: readonly Value[],
): GraphPiece {
  const nodes = slice(graph, wanted, live);
  const read = new Set(nodes.flatMap(({ inputs }) => inputs));
  const b = new GraphBuilder(
    name,
    graph.extents.filter(({ name: extent }) => extent === 'T'),
  );
  const mapped = new Map<Value, Value>();
  const takes = new Map<string, Value>();
  for (const param of graph.params)
    if (read.has(param)) mapped.set(param, b.param(param.name, param.type.dtype, param.type.shape, param.role));
  for (const value of [...live].filter((v) => read.has(v))) {
    const { dtype, shape } = value.type;
    if (dtype !== 'f32' || shape[0] !== 'T') throw new Error(`${value.name} of ${name} is no matrix of f32 by tokens`);
    const param = b.param(`${value.name}_given`, dtype, shape, { kind: 'values' });
    mapped.set(value, param);
    takes.set(param.name, value);
  }
  for (const weight of graph.weights)
    if (read.has(weight)) mapped.set(weight, b.weight(weight.name, weight.type.dtype, weight.type.shape));
  for (const { op, inputs, attributes, result, path } of nodes)
    mapped.set(
      result,
      b.append(
        op,
        inputs.map((v) => mapped.get(v)!),
        attributes,
        result.name,
        path,
      ),
    );
  const results = wanted.map((v) => mapped.get(v)!);
  const outputs = results.map((_, i) => `result${i}`);
  return {
    graph: b.finish(results, outputs),
    takes,
    gives: new Map(wanted.map((v, i) => [`result${i}`, v])),
    drops,
  };
}

export interface CompiledPieces {
  /** Opens piece `index` with weights as they are now. */
  readonly open: (index: number, tensors: ReadonlyMap<string, TensorSource>) => Promise<DeviceExecutor>;
}

/** Compiles pieces for calls of at most `tokens` tokens, in texts of at most `longest`. */
export async function compilePieces(
  pieces: readonly GraphPiece[],
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
  const kernels = Object.assign({}, ...plans.map((plan) => emitCpuPlan(plan).kernels)) as CpuPlanTexts['kernels'];
  const all = printedPlan(kernels, CPU_PRINTING);
  ui.phase('compile kernels', `${all.sources.length} different`);
  const { symbols } = await compileCpuKernels(all, device.isa, {
    onProgress: ({ done, total }) => stepTo(ui, { done, total, unit: 'kernels' }),
  });
  return {
    open: (index, tensors) => {
      const { name } = at(pieces, index).graph;
      return openCpuExecutor({
        plan: at(plans, index),
        symbols: { [name]: symbols[name]! },
        tensors,
        threads,
        maxLength: longest,
      });
    },
  };
}
