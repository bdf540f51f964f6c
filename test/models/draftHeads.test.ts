/**
 * Draft heads from their files, against plain loops in float64: what `step` keeps for them, and chains of drafts, as
 * the model writes its graphs, and as kernels of optimized ones.
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
import {
  DRAFT_VOCAB,
  type HeadCase,
  HEADS,
  OWN_LAYERS,
  HeadReference,
  TARGET,
  TARGET_TENSORS,
  targetStreams,
  type Tensors,
  writeFolder,
  writeHead,
  type Written,
} from '../support/draftHeads.js';
import { userError } from './support.js';

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

describe.each([...HEADS, ...OWN_LAYERS])('$name', (head) => {
  const folders = writeHead(head);
  const checkpoint = openModel(folders.model, { kind: 'checkpoint' }, folders.draft);
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
    expect(draft).toMatchObject({
      name: head.kind === 'mtp' ? 'mtp' : 'eagle',
      ahead: 1,
      maxPositions: 64,
      vocabSize: 320,
    });
    expect(draft!.features!.of).toEqual(head.of ?? 'normed');
    expect(functions.map(({ name }) => name)).toEqual(['score', 'step', 'draft', 'copy']);
  });

  it.each([
    ['as the model writes it', asWritten, graphCall],
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

describe('files that are no head for the model', () => {
  const eagle3 = HEADS[0]!;
  const [, , speculators, eagle] = HEADS;
  type Change = (head: HeadCase) => { readonly config?: object; readonly tensors?: Tensors };
  const change =
    (config: object): Change =>
    ({ config: own }) => ({ config: { ...own, ...config } });
  const without =
    (...names: readonly string[]): Change =>
    ({ tensors }) => ({
      tensors: Object.fromEntries(Object.entries(tensors).filter(([name]) => !names.includes(name))),
    });
  const withTensor =
    (name: string, tensor: Written): Change =>
    ({ tensors }) => ({ tensors: { ...tensors, [name]: tensor } });
  const offsets = (...values: readonly bigint[]): Written => {
    const all = new BigInt64Array(DRAFT_VOCAB);
    all.set(values);
    return { shape: [DRAFT_VOCAB], values: all };
  };
  const floats = (...shape: readonly number[]): Written => ({
    shape,
    values: new Float32Array(shape.reduce((a, b) => a * b, 1)),
  });

  it.each<readonly [string, HeadCase, Change, string | RegExp]>([
    ['another vocabulary', eagle3, change({ vocab_size: 300 }), "vocab_size is 300, and the model's is 320"],
    ['another target', eagle3, change({ target_hidden_size: 64 }), "target_hidden_size is 64, and the model's is 32"],
    ['another width', eagle!, change({ hidden_size: 64 }), "hidden_size is 64, and the model's is 32"],
    ['more tokens than the model', eagle3, change({ draft_vocab_size: 321 }), /draft_vocab_size: expected .* got 321/],
    ['two layers', eagle3, change({ num_hidden_layers: 2 }), 'it has 2 layers; heads of one layer are supported'],
    [
      'layers that the model does not have',
      eagle3,
      change({ eagle_config: { eagle_aux_hidden_state_layer_ids: [0, 2, 4] } }),
      'eagle_aux_hidden_state_layer_ids: expected 1 to 8 layers from 0 to 3, got [0,2,4]',
    ],
    [
      'layers that are no numbers',
      speculators!,
      change({ eagle_aux_hidden_state_layer_ids: ['__proto__'] }),
      'eagle_aux_hidden_state_layer_ids: expected 1 to 8 layers from 1 to 4',
    ],
    ['a norm that is not computed', speculators!, change({ norm_before_fc: true }), 'norm_before_fc is not supported'],
    ['no inner streams', eagle3, change({ eagle_config: { use_aux_hidden_state: false } }), 'use_aux_hidden_state'],
    ['quantized weights', eagle3, change({ quantization_config: { bits: 4 } }), 'heads of quantized weights'],
    ['another speculator', speculators!, change({ speculators_model_type: 'mlp' }), 'of the kind "mlp"'],
    ['no layer', speculators!, change({ transformer_layer_config: 3 }), 'transformer_layer_config: expected an object'],
    ['a token below the vocabulary', eagle3, withTensor('d2t', offsets(-1n)), 'row 0 stands for token -1'],
    ['a token above it', eagle3, withTensor('d2t', offsets(0n, 319n)), 'row 1 stands for token 320'],
    ['an offset of 64 bits', eagle3, withTensor('d2t', offsets(2n ** 62n)), 'd2t: row 0 stands for token 4611686018'],
    ['a short table', eagle3, withTensor('d2t', { shape: [2], values: new BigInt64Array(2) }), 'got I64[2]'],
    ['a table of floats', eagle3, withTensor('d2t', floats(DRAFT_VOCAB)), `got F32[${DRAFT_VOCAB}]`],
    ['no table', eagle3, without('d2t'), 'its head has 40 tokens of 320, and d2t does not say which'],
    ['no matrix of features', eagle3, without('fc.weight'), 'fc.weight: missing'],
    ['two streams', eagle3, withTensor('fc.weight', floats(32, 64)), 'fc.weight: shape [32, 64]'],
    ['queries of one stream', eagle3, withTensor('midlayer.self_attn.q_proj.weight', floats(32, 32)), 'shape [32, 32]'],
    [
      'a tensor of another head',
      eagle3,
      withTensor('medusa_head.0.weight', floats(2, 2)),
      'not a tensor of this model',
    ],
    ['one tensor twice', eagle3, withTensor('layers.0.hidden_norm.weight', floats(32)), 'two tensors are'],
    ['a norm before its attention', eagle!, withTensor('layers.0.input_layernorm.weight', floats(32)), 'not a tensor'],
  ])('are refused: %s', (_title, head, of, message) => {
    const { config = head.config, tensors = head.tensors } = of(head);
    const error = userError(() => openModel(target, { kind: 'checkpoint' }, writeFolder(config, tensors)));
    expect(error.message).toMatch(message);
    expect(error.hint).toMatch(/--draft suffix|docs\/families.md/);
    expect(error.message.split('\n').length).toBeLessThan(3);
  });

  it('are refused: none in the files of the model', () => {
    const without = (): unknown => openModel(target, { kind: 'checkpoint' }, 'mtp');
    expect(userError(without).message).toMatch('its files have no layer that predicts further tokens');
    expect(userError(() => openModel(target, { kind: 'random', seed: 1 }, 'mtp')).message).toMatch('num_nextn_predict');
    const [own] = OWN_LAYERS;
    const { 'mtp.norm.weight': _, ...rest } = own!.tensors;
    const folder = writeFolder(own!.config, { ...TARGET_TENSORS, ...rest });
    expect(userError(() => openModel(folder, { kind: 'checkpoint' }, 'mtp')).message).toMatch(
      'mtp.norm.weight: missing',
    );
    // Without its layer it is the model that it is.
    expect(openModel(folder, { kind: 'checkpoint' }).model.draft).toBeUndefined();
  });

  it('are made up where weights are: with tokens evenly apart', () => {
    const folder = writeFolder(eagle3.config, {});
    const checkpoint = openModel(target, { kind: 'random', seed: 1 }, folder);
    expect(checkpoint.tensors.get('draft.layer.self_attn.q_proj.1.weight')).toMatchObject({
      kind: 'random',
      shape: [32, 32],
    });
    const { functions } = modelFunctions(checkpoint, F32, { cacheRows: CACHE_ROWS, feeds: true });
    expect(functions[2]!.nodes.find(({ op }) => op === 'vector')).toBeDefined();
  });
});
