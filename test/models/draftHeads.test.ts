/**
 * Draft heads from their files, against plain loops in float64: what `step` keeps for them, and chains of drafts, as
 * the model writes its graphs, optimized, and as kernels.
 */
import { describe, expect, it } from 'vitest';
import { modelFunctions, openModel } from '../../driver/functions.js';
import { tensorValues } from '../../driver/tensorValues.js';
import type { Graph } from '../../ir/graph/graph.js';
import { interpretFunction } from '../../ir/graph/interpreter.js';
import { type Draw, noiseKey } from '../../ir/gumbel.js';
import { interpretModule, type RawTensor } from '../../ir/kernelInterpreter.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { lower } from '../../passes/runPasses.js';
import { F32 } from '../passes/lowered.js';
import { distance } from '../passes/modelEnvironment.js';
import { HEADS, HeadReference, TARGET, TARGET_TENSORS, targetStreams, writeFolder } from '../support/draftHeads.js';

const CACHE_ROWS = 40;
const TOKENS = [5, 17, 89, 0, 3, 4];
/** The row of the cache of each position, for tokens and drafts. */
const SLOTS = [30, 2, 3, 17, 0, 39, 8, 9, 10];
const DEPTH = 3;
const drawAt = (at: number): Draw => ({ inverseTemperature: at % 2 === 0 ? 0 : 1.2, ...noiseKey(99n, at) });

type Values = Readonly<Record<string, readonly number[]>>;
type States = ReadonlyMap<string, Float64Array>;
/** A function as something that is called. */
type Call = (
  inputs: Values,
  states: States,
) => { readonly results: (name: string) => Float64Array; readonly states: States };

const sizesOf = (inputs: Values) => ({
  ...{ T: inputs['tokens']!.length, C: inputs['key']!.length, R: inputs['row']!.length },
});
const paramsOf = (inputs: Values): Map<string, Float64Array> =>
  new Map(Object.entries(inputs).map(([name, values]) => [name, Float64Array.from(values)]));

const statesOf = (graphs: readonly Graph[]): States =>
  new Map(
    graphs.flatMap(({ states }) =>
      states.map(({ name, type }) => [name, new Float64Array(type.shape.map(Number).reduce((a, b) => a * b))] as const),
    ),
  );

const valuesIn = ({ tensors }: Checkpoint, name: string, k: number): RawTensor => tensorValues(tensors, name, k);

function graphCall(graph: Graph, checkpoint: Checkpoint): Call {
  const weights = new Map(
    graph.weights.map(({ name, type }) => [name, valuesIn(checkpoint, name, Number(type.shape.at(-1))).data]),
  );
  return (inputs, kept) => {
    const own = new Map(graph.states.map(({ name }) => [name, kept.get(name)!]));
    const env = { sizes: sizesOf(inputs), params: paramsOf(inputs), states: own, weights };
    const { results, states } = interpretFunction(graph, env);
    return {
      results: (name) => results[graph.outputs.indexOf(name)]!.data,
      states: new Map([...kept, ...states]),
    };
  };
}

function kernelCall(graph: Graph, checkpoint: Checkpoint): Call {
  const module = lower(graph, F32);
  verifyIndices(module);
  // A vector is a row, and a column where it is read as a table.
  const columns = module.weights.flatMap(({ layout, k, sources }) =>
    layout === 'rows' && k === 1 ? sources.map(({ tensor }) => tensor) : [],
  );
  const tensors = new Map(
    graph.weights.map(({ name, type: { shape } }) => {
      const k = columns.includes(name) || name.endsWith('.bias') ? 1 : Number(shape.at(-1));
      return [name, valuesIn(checkpoint, name, k)] as const;
    }),
  );
  return (inputs, kept) => {
    const given = module.interface.inputs.map(({ name, buffer }) => [buffer, paramsOf(inputs).get(name)!] as const);
    const out = interpretModule(module, { sizes: sizesOf(inputs), buffers: new Map([...given, ...kept]), tensors });
    return {
      results: (name) => out.get(module.interface.outputs.find((each) => each.name === name)!.buffer)!,
      states: new Map([...kept].map(([name, values]) => [name, out.get(name) ?? values])),
    };
  };
}

/** Inputs of a call with tokens from a place on, whose last token has a row. */
function inputsOf(tokens: readonly number[], from: number, draw: Draw): Values {
  const places = tokens.map((_, i) => from + i);
  return {
    tokens,
    isFed: tokens.map(() => 0),
    feed: tokens.map(() => 0),
    keep: [0],
    position: places,
    slot: places.map((place) => SLOTS[place]!),
    begin: tokens.map(() => 0),
    key: SLOTS.slice(0, from + tokens.length),
    row: [tokens.length - 1],
    target: [0],
    inverseTemperature: [draw.inverseTemperature],
    keyLow: [draw.low],
    keyHigh: [draw.high],
  };
}

const rowOf = (state: Float64Array, row: number): Float64Array => {
  const width = state.length / CACHE_ROWS;
  return state.subarray(row * width, (row + 1) * width);
};

const target = writeFolder(TARGET, TARGET_TENSORS);

describe.each(HEADS)('$name', (head) => {
  const folder = writeFolder(head.config, head.tensors, head.kind === 'eagle' ? 'torch' : 'safetensors');
  const checkpoint = openModel(target, { kind: 'checkpoint' }, folder);
  const dtypeOf = (name: string) => checkpoint.tensors.get(name)!.format;
  const cache = { rows: CACHE_ROWS, dtype: 'f32' } as const;
  const { draft } = checkpoint.model;
  const asWritten = [
    checkpoint.model.step({ cache, dtypeOf, feeds: true, features: draft!.features }),
    draft!.graph({ cache, dtypeOf }),
  ] as const;
  const { functions } = modelFunctions(checkpoint, F32, { cacheRows: CACHE_ROWS, feeds: true });
  const optimized = [functions[1]!, functions[2]!] as const;

  it('is told apart, and what it reads', () => {
    expect(draft).toMatchObject({ name: 'eagle', ahead: 1, maxPositions: 64, vocabSize: 90 });
    expect(draft!.features!.of).toEqual(head.of ?? 'normed');
    expect(functions.map(({ name }) => name)).toEqual(['score', 'step', 'draft', 'copy']);
  });

  it.each([
    ['as the model writes it', asWritten, graphCall],
    ['optimized', optimized, graphCall],
    ['as kernels', optimized, kernelCall],
  ] as const)('drafts what plain loops do: %s', (_title, [step, drafting], callOf) => {
    const [steps, drafts] = [callOf(step, checkpoint), callOf(drafting, checkpoint)];
    const reference = new HeadReference(head);
    const wanted = targetStreams(TOKENS).map((streams) => reference.features(streams));
    let { states } = steps(inputsOf(TOKENS.slice(0, 2), 0, drawAt(1)), statesOf([step, drafting]));
    ({ states } = steps(inputsOf(TOKENS.slice(2), 2, drawAt(5)), states));
    wanted.forEach((features, at) =>
      expect(distance(rowOf(states.get('draft_x')!, SLOTS[at]!), features), `features of ${at}`).toBeLessThan(1e-9),
    );
    // Tokens 1 to 5 at positions 0 to 4, and token 61, which nobody has drawn, at position 5.
    const next = [...TOKENS.slice(1), 61];
    const outputs = next.map((token, at) => reference.step(token, wanted[at]!, at));
    let { own, logits } = outputs.at(-1)!;
    for (let depth = 0; depth < DEPTH; depth++) {
      const place = TOKENS.length + depth;
      const draw = drawAt(place);
      const first = { ...inputsOf(next, 0, draw), feature: SLOTS.slice(0, next.length), keepFeature: [SLOTS[place]!] };
      const fed = {
        ...inputsOf([7], place - 1, draw),
        isFed: [1],
        feature: [SLOTS[place - 1]!],
        keepFeature: [SLOTS[place]!],
      };
      const call = drafts(depth === 0 ? first : fed, states);
      const { token, logProb } = reference.draw(logits, draw);
      expect([...call.results('nextToken')], `draft ${depth}`).toEqual([token]);
      expect(call.results('nextTokenLogProb')[0]).toBeCloseTo(logProb, 9);
      ({ states } = call);
      expect(distance(rowOf(states.get('draft_x')!, SLOTS[place]!), own), `own features ${depth}`).toBeLessThan(1e-9);
      ({ own, logits } = reference.step(token, own, place));
    }
  });
});
