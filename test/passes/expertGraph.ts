/** Mixtures of experts in primitive ops, for tests of passes. */

/** Two of three experts of width 2. `weights` computes %w : f32[T, 3] from %logits : f32[T, 3]. */
export const expertGraph = (weights: string): string => `
  func @g(%x: f32[T, 3]) -> (f32[T, 3]) {
    weight @router : f32[3, 3]
    weight @g0 : f32[2, 3]
    weight @g1 : f32[2, 3]
    weight @g2 : f32[2, 3]
    weight @u0 : f32[2, 3]
    weight @u1 : f32[2, 3]
    weight @u2 : f32[2, 3]
    weight @d0 : f32[3, 2]
    weight @d1 : f32[3, 2]
    weight @d2 : f32[3, 2]
    %logits = linear(%x, @router) : f32[T, 3]
    ${weights.trim()}
    %gates = concat(@g0, @g1, @g2) {axis = 0} : f32[6, 3]
    %gate = linear(%x, %gates) : f32[T, 6]
    %ups = concat(@u0, @u1, @u2) {axis = 0} : f32[6, 3]
    %up = linear(%x, %ups) : f32[T, 6]
    %inner = mul(%gate, %up) : f32[T, 6]
    %by_expert = reshape(%inner) {shape = [T, 3, 2]} : f32[T, 3, 2]
    %w_by_expert = reshape(%w) {shape = [T, 3, 1]} : f32[T, 3, 1]
    %weighted = mul(%by_expert, %w_by_expert) : f32[T, 3, 2]
    %flat = reshape(%weighted) {shape = [T, 6]} : f32[T, 6]
    %downs = concat(@d0, @d1, @d2) {axis = 1} : f32[3, 6]
    %out = linear(%flat, %downs) : f32[T, 3] at "layers.0.ffn.experts.down"
    return %out
  }
`;

/** Their weights are a softmax's largest, and add up to 1. */
export const EXPERTS = expertGraph(`
    %top = reduce_max(%logits) : f32[T, 1]
    %shifted = sub(%logits, %top) : f32[T, 3]
    %exp = exp(%shifted) : f32[T, 3]
    %total = sum(%exp) : f32[T, 1]
    %p = div(%exp, %total) : f32[T, 3]
    %mask = top_mask(%p) {k = 2} : f32[T, 3]
    %kept = mul(%p, %mask) : f32[T, 3]
    %share = sum(%kept) : f32[T, 1]
    %w = div(%kept, %share) : f32[T, 3]
`);
