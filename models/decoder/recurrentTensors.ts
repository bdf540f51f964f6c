/** The tensors of recurrent layers, whose modules hold several matrices each. */
import type { ExpectedTensor, TensorPart } from '../model/tensors.js';
import type { ConvConfig, DeltaConfig, MambaConfig, RecurrentConfig } from './recurrentConfig.js';

/** Modules of a gated DeltaNet's matrices below a layer, as the graph reads them. */
export const DELTA_PARTS = {
  q: 'linear_attn.in_proj.q',
  k: 'linear_attn.in_proj.k',
  v: 'linear_attn.in_proj.v',
  z: 'linear_attn.in_proj_z',
  a: 'linear_attn.in_proj_a',
  b: 'linear_attn.in_proj_b',
} as const;

/** The factors of a convolution for the token that is so many places behind the first that it sees. */
export const convVector = (module: string, tap: number): string => `${module}.tap.${tap}.weight`;

interface Group {
  readonly name: string;
  readonly rows: number;
}

/** Groups of rows one behind another, in `blocks` equal blocks that have some of each. */
function inTurn(layer: string, groups: readonly Group[], suffix: string, blocks = 1): readonly TensorPart[] {
  const stride = groups.reduce((sum, { rows }) => sum + rows, 0) / blocks;
  return groups.map(({ name, rows }, i) => ({
    name: `${layer}.${name}.${suffix}`,
    first: groups.slice(0, i).reduce((sum, group) => sum + group.rows, 0) / blocks,
    rows: rows / blocks,
    stride,
    count: blocks,
  }));
}

const allRows = (groups: readonly Group[]): number => groups.reduce((sum, { rows }) => sum + rows, 0);

const matrix = (name: string, rows: number, columns: number): ExpectedTensor => ({
  name: `${name}.weight`,
  shape: [rows, columns],
  role: 'matrix',
});

const vector = (name: string, width: number): ExpectedTensor => ({ name, shape: [width], role: 'bias' });

/** A module with the rows of several groups. */
const joined = (
  layer: string,
  module: string,
  groups: readonly Group[],
  columns: number,
  blocks = 1,
): ExpectedTensor => ({
  ...matrix(`${layer}.${module}`, allRows(groups), columns),
  parts: inTurn(layer, groups, 'weight', blocks),
});

/** The factors of a convolution over groups of columns, [columns, 1, taps]. */
const convolution = (layer: string, module: string, groups: readonly Group[], taps: number): ExpectedTensor => ({
  name: `${layer}.${module}.weight`,
  shape: [allRows(groups), 1, taps],
  role: 'matrix',
  parts: groups.flatMap(({ name, rows }, i) =>
    Array.from({ length: taps }, (_, tap) => ({
      name: `${layer}.${convVector(name, tap)}`,
      element: tap,
      first: allRows(groups.slice(0, i)),
      rows,
    })),
  ),
});

const norm = (name: string, width: number): ExpectedTensor => ({
  name: `${name}.weight`,
  shape: [width],
  role: 'norm',
});

function deltaTensors(
  { keyHeads, valueHeads, keyDim, valueDim, taps, isByHead, hasPairs }: DeltaConfig,
  layer: string,
  hidden: number,
): readonly ExpectedTensor[] {
  const [keys, values] = [keyHeads * keyDim, valueHeads * valueDim];
  const inner = [
    { name: DELTA_PARTS.q, rows: keys },
    { name: DELTA_PARTS.k, rows: keys },
    { name: DELTA_PARTS.v, rows: values },
  ];
  const gate = { name: DELTA_PARTS.z, rows: values };
  const [b, a] = [
    { name: DELTA_PARTS.b, rows: valueHeads },
    { name: DELTA_PARTS.a, rows: valueHeads },
  ];
  const alone = (...groups: readonly Group[]) =>
    groups.map(({ name, rows }) => matrix(`${layer}.${name}`, rows, hidden));
  const pairs = joined(layer, 'linear_attn.in_proj_ba', [b, a], hidden, keyHeads);
  const projections =
    isByHead === true
      ? [joined(layer, 'linear_attn.in_proj_qkvz', [...inner, gate], hidden, keyHeads), pairs]
      : [
          joined(layer, 'linear_attn.in_proj_qkv', inner, hidden),
          ...alone(gate),
          ...(hasPairs === true ? [pairs] : alone(b, a)),
        ];
  const convolved = (['q', 'k', 'v'] as const).map((name) => ({
    name: `linear_attn.conv1d.${name}`,
    rows: name === 'v' ? values : keys,
  }));
  return [
    ...projections,
    convolution(layer, 'linear_attn.conv1d', convolved, taps),
    vector(`${layer}.linear_attn.dt_bias`, valueHeads),
    vector(`${layer}.linear_attn.A_log`, valueHeads),
    norm(`${layer}.linear_attn.norm`, valueDim),
    matrix(`${layer}.linear_attn.out_proj`, hidden, values),
  ];
}

/** Biases of a module with the rows of several groups. */
const joinedBias = (layer: string, module: string, groups: readonly Group[]): ExpectedTensor => ({
  ...vector(`${layer}.${module}.bias`, allRows(groups)),
  parts: inTurn(layer, groups, 'bias'),
});

function convTensors({ taps, isBiased }: ConvConfig, layer: string, hidden: number): readonly ExpectedTensor[] {
  const groups = ['b', 'c', 'x'].map((name) => ({ name: `conv.in_proj.${name}`, rows: hidden }));
  const own = [{ name: 'conv.conv', rows: hidden }];
  return [
    joined(layer, 'conv.in_proj', groups, hidden),
    ...(isBiased ? [joinedBias(layer, 'conv.in_proj', groups), vector(`${layer}.conv.conv.bias`, hidden)] : []),
    convolution(layer, 'conv.conv', own, taps),
    matrix(`${layer}.conv.out_proj`, hidden, hidden),
    ...(isBiased ? [vector(`${layer}.conv.out_proj.bias`, hidden)] : []),
  ];
}

function mambaTensors(config: MambaConfig, layer: string, hidden: number): readonly ExpectedTensor[] {
  const { heads, headDim, groups, stateSize, taps, isBiased, isConvBiased } = config;
  const [inner, state] = [heads * headDim, groups * stateSize];
  const seen = [
    { name: 'x', rows: inner },
    { name: 'b', rows: state },
    { name: 'c', rows: state },
  ];
  const all = [{ name: 'z', rows: inner }, ...seen, { name: 'dt', rows: heads }].map(({ name, rows }) => ({
    name: `mixer.in_proj.${name}`,
    rows,
  }));
  const convolved = seen.map(({ name, rows }) => ({ name: `mixer.conv1d.${name}`, rows }));
  return [
    joined(layer, 'mixer.in_proj', all, hidden),
    ...(isBiased ? [joinedBias(layer, 'mixer.in_proj', all)] : []),
    convolution(layer, 'mixer.conv1d', convolved, taps),
    ...(isConvBiased ? [joinedBias(layer, 'mixer.conv1d', convolved)] : []),
    ...['dt_bias', 'A_log', 'D'].map((name) => vector(`${layer}.mixer.${name}`, heads)),
    norm(`${layer}.mixer.norm`, inner),
    matrix(`${layer}.mixer.out_proj`, hidden, inner),
    ...(isBiased ? [vector(`${layer}.mixer.out_proj.bias`, hidden)] : []),
  ];
}

/** The tensors of a recurrent layer, in the order of the computation. */
export function recurrentTensors(config: RecurrentConfig, layer: string, hidden: number): readonly ExpectedTensor[] {
  switch (config.kind) {
    case 'delta':
      return deltaTensors(config, layer, hidden);
    case 'conv':
      return convTensors(config, layer, hidden);
    case 'mamba':
      return mambaTensors(config, layer, hidden);
    default:
      return config satisfies never;
  }
}
