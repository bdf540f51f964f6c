/** Heads of classes: which classes of config.json have them, what weights may say of them, and what is refused. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../models/checkpoint.js';
import { describeModel } from '../../models/config.js';
import { ARCHITECTURES, findArchitecture } from '../../models/families/registry.js';
import { RAW, sigmoid, softmax } from '../../models/heads/head.js';
import { verdictScore, verifierByFolder } from '../../models/heads/languageVerifiers.js';
import { HEADS, recordOf } from '../../models/heads/records.js';
import { layOut, safetensors, SMALL_CONFIG, temporaryFolder, userError, writeJson } from './support.js';

type Json = Readonly<Record<string, unknown>>;
const { architectures: _, model_type: __, ...SIZES } = SMALL_CONFIG;
const config = (architecture: string, model_type: string, more: Json = {}): Json => ({
  ...SIZES,
  architectures: [architecture],
  model_type,
  ...more,
});
const describeHead = (json: Json) => describeModel(json, 'config.json').config;

/** A folder with these tensors of a head beside those of the layers. */
function folderOf(json: Json, head: Readonly<Record<string, readonly number[]>>): string {
  const dir = temporaryFolder();
  writeJson(dir, 'config.json', json);
  const own = describeModel(json, 'config.json').tensors.filter(({ name }) => name.startsWith('model.'));
  const { header, size } = layOut([...own.map(({ name, shape }) => [name, shape] as const), ...Object.entries(head)]);
  writeFileSync(join(dir, 'model.safetensors'), safetensors(header, size));
  return dir;
}

describe('classes of config.json', () => {
  it.each([
    ['Qwen2ForProcessRewardModel', 'qwen2', 'process reward', [8, 2]],
    ['Qwen2ForRewardModel', 'qwen2', 'reward', [8, 1]],
    ['Qwen2ForPrmModel', 'qwen2', 'value', [1]],
    ['Qwen3ForSequenceClassification', 'qwen3', 'sequence classification', [2]],
    ['MistralForSequenceClassification', 'mistral', 'sequence classification', [2]],
    ['Gemma3TextForSequenceClassification', 'gemma3_text', 'sequence classification', [2]],
    ['Qwen2ForTokenClassification', 'qwen2', 'token classification', [2]],
    ['ReasonEval_7B', 'mistral', 'ReasonEval', [3]],
    ['ReasonEval_34B', 'llama', 'ReasonEval', [3]],
  ] as const)('%s is a head beside %s', (architecture, type, kind, rows) => {
    const auto_map = { AutoModel: `modeling.${architecture}` };
    const { head, ...rest } = describeHead(config(architecture, type, { auto_map, head_dim: 4 }));
    expect(rest.architecture).toBe(architecture);
    expect(head?.kind).toBe(kind);
    expect(head?.layers.map((layer) => layer.rows)).toEqual(rows);
    expect(recordOf(head!).kind).toBe(kind);
  });

  it('are known for every family', () => {
    for (const { name, modelType } of ARCHITECTURES) {
      const architectures = [name.replace(/ForCausalLM|LMHeadModel/, 'ForSequenceClassification')];
      const { family, head } = findArchitecture({ architectures, model_type: modelType }, 'config.json');
      expect([family.name, head?.kind]).toEqual([name, 'sequence classification']);
    }
  });

  it('are never guessed by model_type, and must agree with it', () => {
    expect(userError(() => describeHead(config('LlamaForScore', 'llama'))).message).toContain('a reward model');
    expect(userError(() => describeHead(config('Qwen2ForPrmModel', 'llama'))).message).toBe(
      'config.json: model_type "llama" does not belong to Qwen2ForPrmModel, whose model_type is "qwen2"',
    );
    expect(describeHead({ ...SMALL_CONFIG, num_labels: 1 }).head).toBeUndefined();
  });

  it('name as many labels as there are', () => {
    const labels = (more: Json) =>
      describeHead(config('LlamaForSequenceClassification', 'llama', more)).head!.layers[0]!.rows;
    expect(labels({ id2label: { 0: 'LABEL_0' } })).toBe(1);
    expect(labels({ num_labels: 19 })).toBe(19);
    expect(labels({ id2label: {} })).toBe(2);
    expect(labels({ num_labels: -3 })).toBe(2);
  });

  it('have kinds that differ', () => {
    expect(new Set(HEADS.map(({ kind }) => kind)).size).toBe(HEADS.length);
  });
});

describe('weights of a head', () => {
  const CLASSIFIER = config('LlamaForSequenceClassification', 'llama');

  it('say how many labels there are, and whether there is a bias, where the file does not', () => {
    const open = (head: Readonly<Record<string, readonly number[]>>) => openCheckpoint(folderOf(CLASSIFIER, head));
    const { config: one, tensors } = open({ 'score.weight': [1, 8] });
    expect(one.head?.layers).toEqual([{ module: 'score', rows: 1, isBiased: false }]);
    expect([...tensors.keys()].at(-1)).toBe('score.weight');
    expect(open({ 'score.weight': [3, 8], 'score.bias': [3] }).config.head?.layers).toEqual([
      { module: 'score', rows: 3, isBiased: true },
    ]);
    const classifier = folderOf(config('LlamaForTokenClassification', 'llama'), { 'classifier.weight': [2, 8] });
    expect(openCheckpoint(classifier).config.head?.layers).toEqual([
      { module: 'classifier', rows: 2, isBiased: false },
    ]);
  });

  it('may lie beside the head of a language model, which is not read', () => {
    const dir = folderOf(config('Qwen2ForPrmModel', 'qwen2'), {
      'v_head.summary.weight': [1, 8],
      'v_head.summary.bias': [1],
      'lm_head.weight': [10, 8],
    });
    const { tensors, config: own, warnings } = openCheckpoint(dir);
    expect(tensors.has('lm_head.weight')).toBe(false);
    expect([own.head?.kind, warnings]).toEqual(['value', []]);
  });

  it.each([
    [
      'another width',
      CLASSIFIER,
      { 'score.weight': [1, 7] },
      'score.weight: shape [1, 7], but config.json requires [1, 8]',
    ],
    [
      'other labels',
      { ...CLASSIFIER, num_labels: 2 },
      { 'score.weight': [1, 8] },
      'score.weight: shape [1, 8], but config.json requires [2, 8]',
    ],
    ['no head', CLASSIFIER, {}, 'score.weight: missing'],
    ['the head of a language model alone', CLASSIFIER, { 'lm_head.weight': [10, 8] }, 'score.weight: missing'],
    [
      'one class of two',
      config('Qwen2ForProcessRewardModel', 'qwen2'),
      { 'score.0.weight': [8, 8], 'score.0.bias': [8], 'score.2.weight': [1, 8], 'score.2.bias': [1] },
      'score.2.weight: shape [1, 8], but config.json requires [2, 8]',
    ],
    ['another head', config('Qwen2ForRewardModel', 'qwen2'), { 'score.weight': [1, 8] }, 'score.0.weight: missing'],
    [
      'no bias',
      config('Qwen2ForRewardModel', 'qwen2'),
      { 'score.0.weight': [8, 8], 'score.2.weight': [1, 8] },
      'score.0.bias: missing',
    ],
  ] as const)('are refused in a line where they do not fit: %s', (_name, json, head, line) => {
    expect(userError(() => openCheckpoint(folderOf(json, head))).message).toContain(`\n  ${line}`);
  });

  it('make a language model none', () => {
    const dir = folderOf({ ...SMALL_CONFIG }, { 'score.weight': [1, 8] });
    expect(userError(() => openCheckpoint(dir)).message).toContain('a classifier or a reward model');
  });
});

describe('scores', () => {
  const rule = (kind: string) => HEADS.find((head) => head.kind === kind)!.score;

  it('are what the makers of a head compute', () => {
    expect(rule('process reward').of([0, Math.log(3)])).toBeCloseTo(0.75, 15);
    expect(rule('reward').of([-7.25])).toBe(-7.25);
    expect(rule('value').of([Math.log(4)])).toBeCloseTo(0.8, 15);
    expect(rule('sequence classification').of([-7.25])).toBe(-7.25);
    expect(rule('token classification').of([0, Math.log(3)])).toBeCloseTo(0.75, 15);
    expect(rule('sequence classification').of([0, 0, 0, 0])).toEqual([0.25, 0.25, 0.25, 0.25]);
    expect(RAW.of([1, 2])).toEqual([1, 2]);
    const steps = [Math.log(1), Math.log(2), Math.log(5)];
    expect(rule('ReasonEval').of(steps)).toBeCloseTo(7 / 8, 15);
    expect(rule('ReasonEval').beside?.of(steps)).toBeCloseTo(2 / 8, 15);
  });

  it('keep probabilities of exactly 0 and 1', () => {
    expect(softmax([2000, -2000])).toEqual([1, 0]);
    expect([sigmoid(-2000), sigmoid(2000)]).toEqual([0, 1]);
    expect(verdictScore(-2000, -0)).toBe(0);
    expect(verdictScore(Math.log(0.03), Math.log(0.01))).toBeCloseTo(0.75, 15);
  });

  it('are those of a language model where its folder says so', () => {
    expect(verifierByFolder('Llama3.1-8B-PRM-Deepseek-Data')?.name).toBe('rlhflow');
    expect(verifierByFolder('math-shepherd-mistral-7b-prm')?.name).toBe('math-shepherd');
    expect(verifierByFolder('Llama-3.1-8B-Instruct')).toBeUndefined();
  });
});
