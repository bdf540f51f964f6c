/**
 * Adapters with random numbers of many kinds on many families: a run with the adapter, part of which rides and part of
 * which replaces tensors, against the ordinary path on a checkpoint that it was merged into in float64. Needs the data
 * folder beside the repository.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { mergeAdapter } from '../../commands/mergeAdapter.js';
import { run } from '../../commands/run.js';
import { answersOf, environment, isBuilt, ROOT, temporaryFolder } from '../e2e/support.js';
import { ADAPTERS } from '../support/adapters.js';
import { type RandomAdapter, writeRandomAdapter } from '../support/randomAdapters.js';
import { quickCc } from '../support/runFolder.js';
import { SILENT } from '../support/silent.js';

const SHARED = join(ROOT, '..', 'shared');
const QUESTIONS = 4;

const QV = /self_attn\.[qv]_proj$/;
const LAYERS = /layers\.\d+\..*(?:[qkvo]|gate|up|down)_proj$/;
const qv = { targets: QV, config: { target_modules: ['q_proj', 'v_proj'] } };
const all = { targets: LAYERS, config: { target_modules: 'all-linear' } };
const experts = (count: number, inner: number): NonNullable<RandomAdapter['experts']> => ({
  path: 'model.layers.*.mlp.experts',
  ...{ count, widths: [64, inner] },
});

const CASES: readonly (readonly [base: string, what: string, asked: Omit<RandomAdapter, 'seed'>])[] = [
  ['qwen3', 'all matrices, with magnitudes', { ...all, hasMagnitudes: true }],
  [
    'gemma3',
    'embedding and matrices',
    { targets: /embed_tokens$|[qv]_proj$/, config: { target_modules: ['embed_tokens', 'q_proj', 'v_proj'] } },
  ],
  ['gemma', 'rows of tokens', { ...qv, tokens: [3, 17, 402] }],
  ['olmo2', 'all matrices', all],
  ['olmo2', 'whole norms', { ...qv, saved: ['post_feedforward_layernorm', 'norm', 'lm_head'] }],
  ['cohere2', 'all matrices', all],
  ['stablelm', 'biases of products', { ...qv, hasProductBiases: true }],
  ['stablelm', 'all biases', { ...qv, biases: 'all' }],
  [
    'stablelm',
    'matrices of half the layers, with biases',
    {
      ...{ targets: /layers\.[13]\..*[qv]_proj$/, biases: 'lora_only' },
      config: { target_modules: ['q_proj', 'v_proj'], layers_to_transform: [1, 3], layers_pattern: 'layers' },
    },
  ],
  [
    'granite',
    'all but some',
    {
      targets: /layers\.\d+\..*(?:[kvo]|gate|up)_proj$/,
      config: { target_modules: 'all-linear', exclude_modules: ['q_proj', 'down_proj'] },
    },
  ],
  [
    'granite',
    'a head',
    { targets: /[qv]_proj$|lm_head$/, config: { target_modules: ['q_proj', 'v_proj', 'lm_head'] } },
  ],
  ['smollm3', 'rank 100', { ...all, rank: 100, config: { ...all.config, use_rslora: true } }],
  [
    'qwen2-moe',
    'shared experts and attention',
    {
      targets: /(?:self_attn\.[qkvo]|shared_expert\.(?:gate|up|down))_proj$/,
      config: { target_modules: '.*(self_attn\\.[qkvo]_proj|shared_expert\\.(gate|up|down)_proj)' },
    },
  ],
  [
    'qwen2-moe',
    'all matrices',
    { targets: /layers\.\d+\..*(?:_proj|gate)$/, config: { target_modules: 'all-linear' } },
  ],
  ['qwen3-moe', 'experts of one parameter', { ...qv, rank: 4, experts: experts(8, 48) }],
  ['mixtral', 'experts of one parameter', { ...qv, rank: 4, experts: experts(4, 96) }],
  [
    'mixtral',
    'routers and experts',
    {
      targets: /block_sparse_moe\.(?:gate|experts\.\d+\.w[123])$/,
      config: { target_modules: ['gate', 'w1', 'w2', 'w3'] },
    },
  ],
];

describe.skipIf(!existsSync(ADAPTERS) || !isBuilt)('adapters of many kinds', () => {
  beforeAll(() => {
    const cc = quickCc('-O1');
    for (const [name, value] of Object.entries(environment(cc === undefined ? {} : { TILEWRIGHT_CC: cc })))
      vi.stubEnv(name, value);
  });

  const answers = async (model: string, path?: string) => {
    const output = temporaryFolder();
    await run(
      {
        ...{ model, init: { kind: 'checkpoint' }, precision: 'f32', task: 'hellaswag', sharing: 'tree', threads: 2 },
        ...(path === undefined ? {} : { adapter: { name: 'made-up', path } }),
        ...{ data: join(SHARED, 'data', 'hellaswag_val.jsonl.gz'), limit: QUESTIONS, output, resume: false },
        batchTokens: 128,
      },
      SILENT,
    );
    return answersOf(output).flatMap(({ ll }) => ll);
  };

  it.each(CASES)('%s: %s', async (base, _what, asked) => {
    const model = join(SHARED, 'checkpoints', 'families', base);
    const [adapter, output] = ['adapter', 'merged'].map((name) => join(temporaryFolder(), name)) as [string, string];
    writeRandomAdapter(model, adapter, { seed: 1 + CASES.findIndex((each) => each[2] === asked), ...asked });
    await mergeAdapter({ model, adapter, output, dtype: 'f32' }, SILENT);
    const [riding, merged, plain] = [await answers(model, adapter), await answers(output), await answers(model)];
    expect(riding).toHaveLength(4 * QUESTIONS);
    const beyond = riding.filter((value, i) => Math.abs(value - merged[i]!) > 0.01 + 1e-4 * Math.abs(merged[i]!));
    expect(beyond, `${riding.join(' ')}\n${merged.join(' ')}`).toEqual([]);
    // It matters, far more than by rounding.
    const moved = riding.filter((value, i) => Math.abs(value - plain[i]!) > 0.5);
    expect(moved.length).toBeGreaterThan(QUESTIONS);
  });
});
