/** Settings that several architectures of GGUF files share, in the words of config.json. */
import type { Json, StoredWays } from '../model/model.js';
import { type GgufFacts, MOST } from './facts.js';

/** Rows of q and k lie in Meta's order. */
export const INTERLEAVED: StoredWays = { hasInterleavedPairs: true };

export const biases = (facts: GgufFacts): Json => ({
  attention_bias: facts.has('blk.0.attn_q.bias'),
  mlp_bias: facts.has('blk.0.ffn_up.bias'),
});

/** layer_types: of a list of flags, or of an interval of which each last layer sees all keys. */
export function layerTypes(facts: GgufFacts, layers: number, interval: number): readonly string[] {
  const key = facts.key('attention.sliding_window_pattern');
  const stated = facts.metadata.isList(key) ? facts.metadata.flags(key) : undefined;
  if (stated !== undefined && stated.length !== layers) facts.refuse(`${key} is not a list of ${layers} layers`);
  const every = stated === undefined ? (facts.metadata.whole(key, 1, layers) ?? interval) : interval;
  return Array.from({ length: layers }, (_, layer) =>
    (stated === undefined ? (layer + 1) % every !== 0 : stated[layer]) ? 'sliding_attention' : 'full_attention',
  );
}

/** The inner width of an expert by its key, or by the shape of its tensors. */
export const widthOf = (facts: GgufFacts, key: string, tensor: string): number | undefined => {
  const stated = facts.whole(key, 1, MOST);
  if (stated !== undefined) return stated;
  const layer = Array.from({ length: facts.layers }, (_, i) => i).find((i) => facts.has(`blk.${i}.${tensor}.weight`));
  return layer === undefined ? undefined : facts.shape(`blk.${layer}.${tensor}.weight`)?.at(-2);
};

/** The window in every layer; null if there is none. */
export const window = (facts: GgufFacts): number | null => {
  const width = facts.whole('attention.sliding_window', 0, MOST) ?? 0;
  return width === 0 ? null : width;
};

/** What expert_gating_func says of a router's scores. */
const [SOFTMAX, SIGMOID] = [1, 2];

/** How routers choose, by the keys that newer files have. `gating`: of a file that does not say. */
export interface Router {
  readonly isSigmoid: boolean;
  readonly isNormalized: boolean | undefined;
  readonly factor: number;
  readonly groups: number;
  readonly keptGroups: number;
  readonly dense: number;
  readonly shared: number;
}

export function routerOf(facts: GgufFacts, fallback: 'softmax' | 'sigmoid'): Router {
  const gating = facts.whole('expert_gating_func', 0, 255) ?? 0;
  if (gating > SIGMOID) facts.refuse(`${facts.key('expert_gating_func')} is ${gating}: a softmax (1) or sigmoids (2)`);
  const scale = facts.number('expert_weights_scale', 0, 1e6) ?? 0;
  return {
    isSigmoid: gating === 0 ? fallback === 'sigmoid' : gating !== SOFTMAX,
    isNormalized: facts.metadata.flag(facts.key('expert_weights_norm')),
    factor: scale === 0 ? 1 : scale,
    groups: facts.whole('expert_group_count', 0, MOST) ?? 1,
    keptGroups: facts.whole('expert_group_used_count', 0, MOST) ?? 1,
    dense: facts.whole('leading_dense_block_count', 0, 1024) ?? 0,
    shared: facts.whole('expert_shared_count', 0, 1024) ?? 0,
  };
}

/** Refuses routers that differ from those of an architecture, which has no settings for them. */
export function requireRouter(
  facts: GgufFacts,
  { isSigmoid, isNormalized }: Pick<Router, 'isSigmoid' | 'isNormalized'>,
) {
  const own = routerOf(facts, isSigmoid ? 'sigmoid' : 'softmax');
  if (own.isSigmoid !== isSigmoid) facts.refuse(`${facts.key('expert_gating_func')} is not known here`);
  if (own.isNormalized !== undefined && own.isNormalized !== isNormalized)
    facts.refuse(`${facts.key('expert_weights_norm')} is ${own.isNormalized}, which is not known here`);
  if (own.factor !== 1) facts.refuse(`${facts.key('expert_weights_scale')} is ${own.factor}, which is not known here`);
  if (own.groups > 1) facts.refuse(`${facts.key('expert_group_count')} is ${own.groups}, which is not known here`);
  return own;
}

/** How many experts there are, and how many a token is sent to. */
export const expertCounts = (facts: GgufFacts) => ({
  count: facts.required('expert_count', 1, MOST),
  chosen: facts.required('expert_used_count', 1, MOST),
});
