import { describe, expect, it } from 'vitest';
import { CompileError } from '../../errors.js';
import type { Graph } from '../../ir/graph/graph.js';
import type { Kernel } from '../../ir/kernel.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import type { LoweredModule } from '../../passes/lowerKernels.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { llama } from './llamaGraph.js';
import { BF16, F32, folded, kernelsOf, lowerAsIs, printModule, printPart } from './lowered.js';
import { parse } from './support.js';

function compiled(graph: Graph, numerics: Numerics): LoweredModule {
  const module = lower(optimize(graph, numerics), numerics);
  verifyKernels(module);
  return module;
}

const at = (module: LoweredModule, path: string): Kernel => module.kernels.find((k) => k.path === path)!;

describe('the kernels of LLaMA', () => {
  it('are these in f32', () => {
    expect(printModule(compiled(llama({ layers: 1 }), F32))).toMatchInlineSnapshot(`
      "
      prepare: loop over T × 8
        cos = cos(mul(toF32(position[row]), rope_inverse_frequencies[column]))
        sin = sin(mul(toF32(position[row]), rope_inverse_frequencies[column]))
      embed: loop over T × 48
        h = toF32(model_embed_tokens_weight_table[tokens[row], column])
        mean_square_parts Σ= mul(toF32(model_embed_tokens_weight_table[tokens[row], column]),
            toF32(model_embed_tokens_weight_table[tokens[row], column]))
      layers_0_attention_qkv: gemm over T, h[T, 48]
        layers_0_attention_qkv_w0: 32 columns, rotate 8 by 4
          rotated = add(mul(mul(acc0, rsqrt(add(mul(rowSum(mean_square_parts), 0.020833333333333332), 0.00001))),
              cos[row, column mod 8]), mul(rotateHalf(mul(acc0, rsqrt(add(mul(rowSum(mean_square_parts),
              0.020833333333333332), 0.00001)))), sin[row, column mod 8]))
        layers_0_attention_qkv_w1: 16 columns, rotate 8 by 4
          rotated1 = add(mul(mul(acc0, rsqrt(add(mul(rowSum(mean_square_parts), 0.020833333333333332), 0.00001))),
              cos[row, column mod 8]), mul(rotateHalf(mul(acc0, rsqrt(add(mul(rowSum(mean_square_parts),
              0.020833333333333332), 0.00001)))), sin[row, column mod 8]))
        layers_0_attention_qkv_w2: 16 columns
          v = mul(acc0, rsqrt(add(mul(rowSum(mean_square_parts), 0.020833333333333332), 0.00001)))
      layers_0_attention_mix: attention over R, attended_r1_scored = softmax(0.35355339059327373·rotated·rotated1 +
          column subtree_end)·v, 4/2 heads of 8, queries row
      layers_0_attention_o: gemm over R, attended_r1_scored[R, 32]
        layers_0_attention_o_w0: 48 columns
          h1_scored = add(h[row[row], column], acc0)
          mean_square1_scored_parts Σ= mul(add(h[row[row], column], acc0), add(h[row[row], column], acc0))
      layers_0_ffn_gate_up: gemm over R, h1_scored[R, 48]
        layers_0_ffn_gate_up_w0: 40 columns, interleave by 16
          activated_scored = mul(div(mul(acc0, rsqrt(add(mul(rowSum(mean_square1_scored_parts), 0.020833333333333332),
              0.00001))), add(1, exp(neg(mul(acc0, rsqrt(add(mul(rowSum(mean_square1_scored_parts),
              0.020833333333333332), 0.00001))))))), mul(acc1, rsqrt(add(mul(rowSum(mean_square1_scored_parts),
              0.020833333333333332), 0.00001))))
      layers_0_ffn_down: gemm over R, activated_scored[R, 40]
        layers_0_ffn_down_w0: 48 columns
          h2_scored = add(h1_scored[row, column], acc0)
          mean_square2_scored_parts Σ= mul(add(h1_scored[row, column], acc0), add(h1_scored[row, column], acc0))
      head: logprob over R, head_parts of h2_scored[R,
          48]·head_w0[600]·rsqrt(add(mul(rowSum(mean_square2_scored_parts), 0.020833333333333332), 0.00001)) at target
      head_reduce: logprobReduce over R, log_prob, is_argmax = head_parts at target
      "
    `);
  });

  it('are five for each layer, and say what was fused into them', () => {
    const module = compiled(llama(), F32);
    expect(module.kernels.filter((k) => k.path.startsWith('layers.0')).map((k) => `${k.path}: ${k.ops.join(' ')}`))
      .toMatchInlineSnapshot(`
      [
        "layers.0.attention.qkv: linear linear linear mul mul rotate_half mul add mul mul rotate_half mul add mul",
        "layers.0.attention.mix: attention",
        "layers.0.attention.o: linear add mul mean",
        "layers.0.ffn.gate_up: linear linear mul mul neg exp add div mul",
        "layers.0.ffn.down: linear add mul mean",
      ]
    `);
  });

  it('compute the last layer and the head only for scored rows, from keys and values of all tokens', () => {
    const module = compiled(llama(), F32);
    expect(module.kernels.map((k) => k.rows).join('')).toBe('TTTTTTTTRRRRRR');
    expect(printPart(module, 'layers.1.attention')).toMatchInlineSnapshot(`
      "
      layers_1_attention_qkv: gemm over T, h2[T, 48]
        layers_1_attention_qkv_w0: 32 columns, rotate 8 by 4
          rotated2 = add(mul(mul(acc0, rsqrt(add(mul(rowSum(mean_square2_parts), 0.020833333333333332), 0.00001))),
              cos[row, column mod 8]), mul(rotateHalf(mul(acc0, rsqrt(add(mul(rowSum(mean_square2_parts),
              0.020833333333333332), 0.00001)))), sin[row, column mod 8]))
        layers_1_attention_qkv_w1: 16 columns, rotate 8 by 4
          rotated3 = add(mul(mul(acc0, rsqrt(add(mul(rowSum(mean_square2_parts), 0.020833333333333332), 0.00001))),
              cos[row, column mod 8]), mul(rotateHalf(mul(acc0, rsqrt(add(mul(rowSum(mean_square2_parts),
              0.020833333333333332), 0.00001)))), sin[row, column mod 8]))
        layers_1_attention_qkv_w2: 16 columns
          v1 = mul(acc0, rsqrt(add(mul(rowSum(mean_square2_parts), 0.020833333333333332), 0.00001)))
      layers_1_attention_mix: attention over R, attended_r2_scored = softmax(0.35355339059327373·rotated2·rotated3 +
          column subtree_end)·v1, 4/2 heads of 8, queries row
      layers_1_attention_o: gemm over R, attended_r2_scored[R, 32]
        layers_1_attention_o_w0: 48 columns
          h3_scored = add(h2[row[row], column], acc0)
          mean_square3_scored_parts Σ= mul(add(h2[row[row], column], acc0), add(h2[row[row], column], acc0))
      "
    `);
  });

  it('store rounded copies for contractions in bf16, beside the f32 residual', () => {
    const module = compiled(llama(), BF16);
    expect(printPart(module, 'layers.0.ffn')).toMatchInlineSnapshot(`
      "
      layers_0_ffn_gate_up: gemm over T, h1_bf16[T, 48]
        layers_0_ffn_gate_up_w0: 40 columns, interleave by 16
          activated_bf16 = roundBf16(mul(div(mul(acc0, rsqrt(add(mul(rowSum(mean_square1_parts),
              0.020833333333333332), 0.00001))), add(1, exp(neg(mul(acc0, rsqrt(add(mul(rowSum(mean_square1_parts),
              0.020833333333333332), 0.00001))))))), mul(acc1, rsqrt(add(mul(rowSum(mean_square1_parts),
              0.020833333333333332), 0.00001)))))
      layers_0_ffn_down: gemm over T, activated_bf16[T, 40]
        layers_0_ffn_down_w0: 48 columns
          h2_bf16 = roundBf16(add(h1[row, column], acc0))
          h2 = add(h1[row, column], acc0)
          mean_square2_parts Σ= mul(add(h1[row, column], acc0), add(h1[row, column], acc0))
      "
    `);
    const reads = module.kernels.flatMap((k) =>
      k.anchor === 'gemm' || k.anchor === 'logprob' ? [module.buffers.find((b) => b.name === k.a)!.dtype] : [],
    );
    expect(new Set(reads)).toEqual(new Set(['bf16']));
  });

  it.each([
    [8, 4],
    [16, 8],
    [32, 16],
    [48, 8],
    [64, 16],
    [80, 8],
    [96, 16],
    [128, 16],
    [12, 2],
    [6, 1],
  ])('rotate heads of %i in pairs of %i lanes', (headDim, width) => {
    const qkv = at(compiled(llama({ headDim }), F32), 'layers.0.attention.qkv');
    expect(qkv.anchor === 'gemm' ? qkv.segments.map((s) => [s.columns, s.pairing]) : undefined).toEqual([
      [4 * headDim, { kind: 'rotate', headDim, width }],
      [2 * headDim, { kind: 'rotate', headDim, width }],
      [2 * headDim, { kind: 'none' }],
    ]);
  });

  it.each([
    [4, 4],
    [4, 2],
    [4, 1],
  ])('let %i query heads share %i key heads', (heads, kvHeads) => {
    const module = compiled(llama({ heads, kvHeads }), F32);
    expect(at(module, 'layers.0.attention.mix')).toMatchObject({ heads, kvHeads, headDim: 8, scale: 1 / Math.sqrt(8) });
    expect(module.buffers.filter((b) => b.columns === kvHeads * 8 && b.rows === 'T').length).toBeGreaterThanOrEqual(
      kvHeads === heads ? 3 : 2,
    );
  });

  it('read weights as the checkpoint has them, with norms folded in', () => {
    const module = compiled(llama(), BF16);
    const lines = module.weights.map((w) => {
      const sources = w.sources.map((s) => `${s.tensor}[${s.rows}, ${w.k}]`).join(' + ');
      const scale = w.columnScale === undefined ? '' : ` · ${w.columnScale}`;
      return `${w.name}: ${w.layout} ${w.format} of ${sources}${scale}, ${w.pairing.kind}`;
    });
    expect(folded(lines.filter((_, i) => i < 8 || i > 13).join('\n'))).toMatchInlineSnapshot(`
      "rope_inverse_frequencies: rows f32 of constant.rope_inverse_frequencies[8, 1], none
      model_embed_tokens_weight_table: rows bf16 of model.embed_tokens.weight[600, 48], none
      layers_0_attention_qkv_w0: vnni bf16 of model.layers.0.self_attn.q_proj.weight[32, 48] ·
          model.layers.0.input_layernorm.weight, rotate
      layers_0_attention_qkv_w1: vnni bf16 of model.layers.0.self_attn.k_proj.weight[16, 48] ·
          model.layers.0.input_layernorm.weight, rotate
      layers_0_attention_qkv_w2: vnni bf16 of model.layers.0.self_attn.v_proj.weight[16, 48] ·
          model.layers.0.input_layernorm.weight, none
      layers_0_attention_o_w0: vnni bf16 of model.layers.0.self_attn.o_proj.weight[48, 32], none
      layers_0_ffn_gate_up_w0: vnni bf16 of model.layers.0.mlp.gate_proj.weight[40, 48] +
          model.layers.0.mlp.up_proj.weight[40, 48] · model.layers.0.post_attention_layernorm.weight, interleave
      layers_0_ffn_down_w0: vnni bf16 of model.layers.0.mlp.down_proj.weight[48, 40], none
      head_w0: vnni bf16 of lm_head.weight[600, 48] · model.norm.weight, none"
    `);
    expect(module.constants.map((c) => [c.name, c.values.length])).toEqual([['constant.rope_inverse_frequencies', 8]]);
  });

  it('read the embedding as head if they are tied: mapped rows for one, packed panels for the other', () => {
    const tied = compiled(llama({ tieWordEmbeddings: true }), F32).weights.filter(
      (w) => w.sources[0]!.tensor === 'model.embed_tokens.weight',
    );
    expect(tied.map((w) => [w.layout, w.format])).toEqual([
      ['rows', 'bf16'],
      ['panels', 'f32'],
    ]);
  });
});

describe('the head', () => {
  const head = (lines: string, results: string, types: string): string => `
    func @g(%x: f32[R, 4], %scale: f32[R, 1], %target: i32[R], %other: i32[R]) -> (${types}) {
      weight @head : f32[600, 4]
      ${lines}
      return ${results}
    }`;
  const LOG_PROB = '%lp = logprob(%x, @head, %scale, %target) : f32[R] at "head"';
  const BEST = '%best = is_argmax(%x, @head, %scale, %target) : i32[R] at "head"';

  it.each([
    ['both', head(`${LOG_PROB}\n${BEST}`, '%lp, %best', 'f32[R], i32[R]'), 2],
    ['both, the other way round', head(`${BEST}\n${LOG_PROB}`, '%lp, %best', 'f32[R], i32[R]'), 2],
    ['the log-probability alone', head(LOG_PROB, '%lp', 'f32[R]'), 2],
    ['the argmax alone', head(BEST, '%best', 'i32[R]'), 2],
    [
      'of two targets',
      head(
        `${LOG_PROB}\n%best = is_argmax(%x, @head, %scale, %other) : i32[R] at "head"`,
        '%lp, %best',
        'f32[R], i32[R]',
      ),
      4,
    ],
    ['and something computed from it', head(`${LOG_PROB}\n%p = exp(%lp) : f32[R]`, '%p, %lp', 'f32[R], f32[R]'), 3],
    [
      'with a scale that a contraction computes',
      head(
        '%gate = linear(%x, @w) : f32[R, 1]\n%bent = cos(%gate) : f32[R, 1]\n%lp = logprob(%x, ' +
          '@head, %bent, %target) : f32[R]',
        '%lp',
        'f32[R]',
      ).replace('weight @head', 'weight @w : f32[1, 4]\n      weight @head'),
      3,
    ],
  ])('gives %s', (_what, text, kernels) => {
    expect(
      kernelsOf(text)
        .trim()
        .split('\n')
        .filter((line) => !line.startsWith(' ')).length,
    ).toBe(kernels);
  });
});

describe('graphs that no kernel computes', () => {
  const refused = (params: string, lines: string): string => {
    const results = /return (.*)$/m.exec(lines)![1]!.split(', ');
    const types = results.map((r) => new RegExp(`${r} = .* : ([a-z0-9]+\\[[^\\]]*\\])`).exec(lines)![1]!).join(', ');
    const graph = parse(`
      func @g(${params}) -> (${types}) {
        weight @w : bf16[4, 4]
        weight @v : bf16[4, 4]
        weight @u : bf16[4, 4]
        weight @norm : bf16[4]
        ${lines}
      }`);
    try {
      lowerAsIs(graph);
    } catch (error) {
      if (error instanceof CompileError) return error.message;
      throw error;
    }
    throw new Error('it was lowered');
  };

  it('are refused in words that name the value or the place', () => {
    const x = '%x: f32[T, 4]';
    expect(
      refused(
        x,
        '%a = linear(%x, @w) : f32[T, 4] at "ffn.a"\n %b = linear(%x, @v) : f32[T, 4] at "ffn.b"\n ' +
          '%c = linear(%x, @u) : f32[T, 4] at "ffn.c"\n %d = add(%a, %b) : f32[T, 4]\n %e = mul(%c, ' +
          '%d) : f32[T, 4]\n return %e',
      ),
    ).toMatchInlineSnapshot(`"ffn.abc: 3 contractions meet in one expression; at most two can share a kernel"`);
    expect(
      refused(
        x,
        '%a = linear(%x, @w) : f32[T, 4] at "q"\n %r = rotate_half(%a) : f32[T, 4] at "q"\n %heads ' +
          '= reshape(%a) {shape = [T, 2, 2]} : f32[T, 2, 2]\n %s = rotate_half(%heads) : f32[T, 2, ' +
          '2] at "q"\n %flat = reshape(%s) {shape = [T, 4]} : f32[T, 4]\n %y = add(%r, %flat) : ' +
          'f32[T, 4]\n return %y',
      ),
    ).toMatchInlineSnapshot(
      `"q: %a is rotated in heads of 4 and of 2; one kernel rotates one matrix, in heads of one width"`,
    );
    expect(
      refused(
        x,
        '%a = linear(%x, @w) : f32[T, 4] at "q"\n %b = linear(%x, @v) : f32[T, 4] at "k"\n %r = ' +
          'rotate_half(%a) : f32[T, 4]\n %y = mul(%r, %b) : f32[T, 4]\n return %y',
      ),
    ).toMatchInlineSnapshot(
      `"qk: %a is rotated in heads of 4 and is combined with %b; one kernel rotates one matrix, in heads of one width"`,
    );
    expect(refused(`${x}, %given: f32[4, 4]`, `%y = linear(%x, %given) : f32[T, 4]\n return %y`)).toMatchInlineSnapshot(
      `"%given: no buffer can hold f32[4, 4]; the first extent must be a named one, the others fixed or one named"`,
    );
    expect(
      refused(
        x,
        '%f = cast(@w) {dtype = "f32"} : f32[4, 4]\n %s = mul(%f, %f) : f32[4, 4]\n %y = ' +
          'linear(%x, %s) : f32[T, 4]\n return %y',
      ),
    ).toMatchInlineSnapshot(
      '"%s: the weight packer does not support this load-time expression; it takes a matrix, or ' +
        'a matrix times a norm weight"',
    );
    expect(
      refused(
        x,
        '%f = cast(@w) {dtype = "f32"} : f32[4, 4]\n %n = cast(@norm) {dtype = "f32"} : f32[4]\n ' +
          '%s = mul(%f, %n) : f32[4, 4]\n %a = linear(%x, %s) : f32[T, 4] at "gate"\n %b = ' +
          'linear(%x, @v) : f32[T, 4] at "up"\n %y = mul(%a, %b) : f32[T, 4]\n return %y',
      ),
    ).toMatchInlineSnapshot(`"gate_up: paired matrices have different folded norms"`);
    expect(refused(`${x}, %s: f32[]`, `%y = mul(%x, %s) : f32[T, 4]\n return %y`)).toMatchInlineSnapshot(
      `"%s: no buffer can hold f32[]; the first extent must be a named one, the others fixed or one named"`,
    );
    expect(
      refused('%x: f32[T, 2, 2], %z: f32[T, 2, 1]', `%y = mul(%x, %z) : f32[T, 2, 2]\n return %y`),
    ).toMatchInlineSnapshot(`"%z: reading [T, 2, 1] in the domain [T, 2, 2] is not supported"`);
    expect(
      refused(
        `${x}, %tokens: i32[T], %row: i32[R]`,
        '%a = gather_rows(%x, %tokens) : f32[T, 4]\n %b = gather_rows(%a, %row) : f32[R, 4]\n %y = ' +
          'neg(%b) : f32[R, 4]\n return %y',
      ),
    ).toMatchInlineSnapshot(`"%b: a gather of a gather is not supported"`);
  });
});
