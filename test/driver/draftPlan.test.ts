/** Plans of a model with a draft model: what they hold, what names them, and drafts that are refused. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { cacheBytesOf } from '../../commands/cacheSize.js';
import { inspectModel } from '../../commands/inspect.js';
import { planKey } from '../../driver/artifact/planCache.js';
import { saveArtifact } from '../../driver/artifact/save.js';
import { compileModel } from '../../driver/compile/compile.js';
import { beginOpening } from '../../driver/compile/open.js';
import { openModel } from '../../driver/functions.js';
import { checkPlan, legalityOf } from '../../driver/plan.js';
import { cpu } from '../../driver/targets/cpu.js';
import { cpuDevice, detectMachine } from '../../driver/targets/cpuDevice.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import type { AnyTarget } from '../../driver/targets/target.js';
import { draftBuckets, isPaged } from '../../ir/stepping.js';
import { joinDraft } from '../../models/draft/join.js';
import { SILENT } from '../support/silent.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-draft-plan-'));
afterAll(() => rmSync(root, { recursive: true }));

const INIT = { kind: 'random', seed: 1 } as const;
const CONFIG = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  torch_dtype: 'bfloat16',
  hidden_size: 128,
  intermediate_size: 192,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  vocab_size: 320,
  max_position_embeddings: 256,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  tie_word_embeddings: true,
};

let folders = 0;
function folderOf(config: object): string {
  const dir = join(root, `model${folders++}`);
  mkdirSync(dir);
  writeFileSync(join(dir, 'config.json'), JSON.stringify({ ...CONFIG, ...config }));
  return dir;
}

const target = folderOf({});
// Another shape, other rotary angles and a shorter context.
const SMALL = {
  hidden_size: 64,
  num_hidden_layers: 4,
  num_attention_heads: 1,
  rope_theta: 5000,
  max_position_embeddings: 96,
};
const draft = folderOf(SMALL);

const TARGETS = [
  ['a CPU', cpu, cpuDevice(detectMachine(), 'f32')],
  ['a GPU', cuda, cudaDevice(TYPICAL_FACTS.sm_90a, 'bf16')],
] as unknown as readonly (readonly [string, AnyTarget, unknown])[];

describe('a plan with a draft model', () => {
  it.each(TARGETS)('drafts beside steps, and copies what both keep: on %s', (_title, kind, device) => {
    const options = { cacheTokens: 256, batchTokens: 128, feeds: true };
    const compile = (draftModel?: string) => compileModel(openModel(target, INIT, draftModel), kind, device, options);
    const [model, plain] = [compile(draft), compile()];
    const { plan } = model;
    checkPlan(plan, legalityOf(kind.compiler.scheduling, device));
    expect(plan.functions.map((fn) => fn.interface.name)).toEqual(['score', 'step', 'draft', 'copy']);
    const [, step, drafting, copy] = plan.functions;
    const kept = plan.states.filter(isPaged).map(({ name }) => name);
    expect([...copy!.interface.gives].sort()).toEqual([...kept].sort());
    expect(step!.interface.takes.filter((name) => name.startsWith('draft_'))).toEqual([]);
    expect(drafting!.interface.takes.every((name) => name.startsWith('draft_'))).toBe(true);
    expect(drafting!.interface.takes.length).toBe(2 * SMALL.num_hidden_layers + 1);
    // Keys of several layers in one kernel would keep a pipeline, and other kernels, from starting.
    for (const { parameters } of drafting!.launches)
      expect(new Set(parameters.flatMap((name) => /^draft_[kv]_(\d+)$/.exec(name)?.[1] ?? [])).size).toBeLessThan(2);
    // Names of results and answers are those without it.
    expect(model.graphs).toEqual(plain.graphs);
    expect(cacheBytesOf(model)).toBeGreaterThan(cacheBytesOf(plain));
    expect(plan.weights.length).toBeGreaterThan(plain.plan.weights.length);
  });

  it.each([
    ['int8 on a CPU', cpu, cpuDevice(detectMachine(), 'int8')],
    ['fp8 on a GPU', cuda, cudaDevice(TYPICAL_FACTS.sm_90a, 'fp8')],
  ] as unknown as typeof TARGETS)('has weights of its own, in %s', (_title, kind, device) => {
    const checkpoint = openModel(target, INIT, folderOf({ ...SMALL, num_hidden_layers: 1 }));
    const { plan } = compileModel(checkpoint, kind, device, { cacheTokens: 64, batchTokens: 64 });
    const names = plan.weights.map(({ name }) => name);
    expect(names.some((name) => name.startsWith('draft_'))).toBe(true);
    expect(plan.constants.map(({ name }) => name).sort()).toEqual([
      'constant.draft_rope_inverse_frequencies',
      'constant.rope_inverse_frequencies',
    ]);
  });

  it.each(['int8', 'fp8'] as const)('keeps its keys as %s where the model does', (kvCache) => {
    const [, kind, device] = TARGETS[1]!;
    const options = { cacheTokens: 256, batchTokens: 64, kvCache };
    const { plan } = compileModel(
      openModel(target, INIT, folderOf({ ...SMALL, num_hidden_layers: 1 })),
      kind,
      device,
      options,
    );
    const own = plan.states.filter(({ name }) => /^draft_[kv]_0/.test(name)).map(({ name }) => name);
    expect(own.sort()).toEqual(['draft_k_0', 'draft_k_0_scale', 'draft_v_0', 'draft_v_0_scale']);
  });

  it('is shown as it is compiled', async () => {
    const request = { model: target, init: INIT, precision: 'f32', target: 'cpu', batchTokens: 64 } as const;
    const { model, stages } = await inspectModel({ ...request, cacheTokens: 64, draftModel: draft });
    expect(model.plan.functions.map((fn) => fn.interface.name)).toContain('draft');
    const shown = stages.flatMap((stage) => (stage.level === 'graph' ? [stage.graph.name] : []));
    expect([...new Set(shown)]).toEqual(['score', 'step', 'draft', 'copy']);
  });

  it('takes long prompts in pieces, where smaller sizes are known', () => {
    const sizesOf = (prompts: readonly number[]): readonly number[] =>
      draftBuckets(
        prompts.map((T) => ({ extents: { T }, longest: T })),
        [128],
      ).map(({ extents }) => extents['T']!);
    // Small ones are there once more for calls with a token of each path.
    const small = [1, ...[2, 4, 8, 16, 32, 64].flatMap((tokens) => [tokens, tokens])];
    expect(sizesOf([66, 1056, 2112, 16_896])).toEqual([...small, 66, 128, 128, 1056, 2112]);
    expect(sizesOf([4096])).toEqual([...small, 4096]);
  });

  it('is another one in the cache for every draft', () => {
    const [, kind, device] = TARGETS[0]!;
    const keyOf = (draftModel?: string): string =>
      planKey({ checkpoint: openModel(target, INIT, draftModel), target: kind, device, options: { cacheTokens: 64 } });
    const others = [
      draft,
      folderOf({ ...SMALL, rope_theta: 1e6 }),
      folderOf({ ...SMALL, num_hidden_layers: 3 }),
      target,
    ];
    expect(new Set([keyOf(), ...others.map(keyOf)]).size).toBe(5);
    expect(keyOf(folderOf(SMALL))).toBe(keyOf(draft));
  });
});

describe('a checkpoint that is joined with its draft', () => {
  it('is the same model, with the tensors of both', () => {
    const [plain, joined, own] = [openModel(target, INIT), openModel(target, INIT, draft), openModel(draft, INIT)];
    expect(joined.fingerprint()).toBe(plain.fingerprint());
    expect(joined.config).toBe(joined.model.config);
    expect(joined.tensors.size).toBe(plain.tensors.size + own.tensors.size);
    const name = 'model.layers.3.mlp.up_proj.weight';
    expect(joined.tensors.get(`draft.${name}`)).toEqual({ ...own.tensors.get(name), name: `draft.${name}` });
    expect(joined.model.draft).toMatchObject({ name: 'model', ahead: 0, maxPositions: 96, vocabSize: 320 });
  });

  it('has no tensor with two meanings', () => {
    const plain = openModel(target, INIT);
    const found = { draft: openModel(target, INIT, draft).model.draft!, tensors: plain.tensors, warnings: [] };
    const [first] = plain.tensors.values();
    const taken = { ...plain, tensors: new Map([[`draft.${first!.name}`, first!]]) };
    expect(() => joinDraft(taken, found)).toThrow(/has a tensor draft\..* itself/);
  });

  const open = (draftModel: string, model = target) =>
    beginOpening({ model, init: INIT, precision: 'f32', target: 'cpu', draftModel }, detectMachine(), SILENT);

  it('is refused with a vocabulary of another size, and with a head of classes', () => {
    expect(() => open(folderOf({ vocab_size: 319 }))).toThrow(
      'cannot draft: it has a vocabulary of 319 tokens, and the model one of 320',
    );
    const classes = folderOf({ architectures: ['LlamaForSequenceClassification'], num_labels: 2 });
    expect(() => openModel(target, { kind: 'random', seed: 1 }, classes)).toThrow('its head gives classes, not tokens');
    expect(() => open(join(root, 'nowhere'))).toThrow('nowhere');
  });

  it('is in no artifact', async () => {
    const [, kind, device] = TARGETS[0]!;
    const model = compileModel(openModel(target, INIT, draft), kind, device, { cacheTokens: 64, batchTokens: 64 });
    const reference = { path: target, fingerprint: '0'.repeat(64), init: INIT };
    const dir = join(root, 'model.tw');
    await expect(saveArtifact(dir, { reference, model, kernels: { sources: [] }, isTuned: false })).rejects.toThrow(
      `${dir}: an artifact holds no draft`,
    );
  });
});
