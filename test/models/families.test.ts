/** docs/families.md says what models/families/registry.ts does: its tables of families and settings are tried whole. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import { ARCHITECTURES, findArchitecture } from '../../models/families/registry.js';
import type { Architecture, ModelConfig } from '../../models/model/model.js';
import { parseJson } from '../../system/json.js';

const DOC = readFileSync(join(import.meta.dirname, '..', '..', 'docs', 'families.md'), 'utf8');

/** Rows of the table below `heading`, without its header, as cells. */
function tableOf(heading: string): readonly (readonly string[])[] {
  const section = DOC.split(`## ${heading}\n`)[1]?.split('\n## ')[0] ?? '';
  const lines = section.split('\n').filter((line) => line.startsWith('|'));
  const rows = lines.slice(2).map((line) =>
    line
      .slice(1, -1)
      .split('|')
      .map((cell) => cell.trim()),
  );
  expect(rows.length, heading).toBeGreaterThan(0);
  return rows;
}

/** The text between backticks. */
const codeIn = (cell = ''): readonly string[] => [...cell.matchAll(/`([^`]+)`/g)].map(([, code = '']) => code);

/** A small model of the family. */
const configOf = ({ name, modelType }: Architecture): Record<string, unknown> => ({
  architectures: [name],
  model_type: modelType,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  vocab_size: 256,
  max_position_embeddings: 16_384,
  ...(modelType === 'mamba2' ? { num_heads: 8, head_dim: 16 } : {}),
});

/** How the table calls families. */
const NAMES: Readonly<Record<string, string>> = {
  LLaMA: 'llama',
  'Qwen 2': 'qwen2',
  'Qwen 3': 'qwen3',
  Mistral: 'mistral',
  OLMo: 'olmo',
  'OLMo 2': 'olmo2',
  'OLMo 3': 'olmo3',
  'Phi 3': 'phi3',
  StableLM: 'stablelm',
  'StarCoder 2': 'starcoder2',
  Granite: 'granite',
  SmolLM3: 'smollm3',
  'GPT-NeoX': 'gpt_neox',
  Gemma: 'gemma',
  'Gemma 2': 'gemma2',
  'Gemma 3': 'gemma3_text',
  'Command R': 'cohere2',
  'gpt-oss': 'gpt_oss',
  Mixtral: 'mixtral',
  'Qwen 3.5': 'qwen3_5_text',
  'Qwen 3 Next': 'qwen3_next',
  'Qwen 3.5 MoE': 'qwen3_5_moe_text',
  'LFM2 MoE': 'lfm2_moe',
  'ERNIE 4.5 MoE': 'ernie4_5_moe',
  LFM2: 'lfm2',
  'Mamba 2': 'mamba2',
  'Seed-OSS': 'seed_oss',
  Arcee: 'arcee',
  'ERNIE 4.5': 'ernie4_5',
  Hunyuan: 'hunyuan_v1_dense',
  GLM: 'glm',
  'GLM-4': 'glm4',
  'EXAONE 4': 'exaone4',
  Cohere: 'cohere',
  Nemotron: 'nemotron',
  Falcon: 'falcon',
  OLMoE: 'olmoe',
  'GLM-4.5': 'glm4_moe',
  'MiniMax-M2': 'minimax_m2',
  'Ministral 3': 'ministral3',
  'Granite MoE': 'granitemoe',
  Apertus: 'apertus',
  Phi: 'phi',
  'Phi MoE': 'phimoe',
  'GPT-2': 'gpt2',
  OPT: 'opt',
  BLOOM: 'bloom',
  'Llama 4': 'llama4_text',
  MPT: 'mpt',
  'DeepSeek V2': 'deepseek_v2',
  'DeepSeek V3': 'deepseek_v3',
  'GLM 4.7': 'glm4_moe_lite',
  'Qwen 2 MoE': 'qwen2_moe',
  'Qwen 3 MoE': 'qwen3_moe',
};

/**
 * The families that a row names in brackets, all but those if it says `not`, or all if it names none. Each describes
 * itself with `setting`.
 */
function describeWith(setting: string, text: string): readonly ((isSet?: boolean) => ModelConfig)[] {
  const json = parseJson(setting, setting) as Record<string, unknown>;
  const [, not, list = ''] = /\((not )?([^()]*)\)$/.exec(text) ?? [];
  const names = list === '' ? [] : list.split(', ');
  const named = names.map((name) => NAMES[name]);
  expect(named, text).not.toContain(undefined);
  return ARCHITECTURES.filter(
    ({ modelType }) => named.length === 0 || named.includes(modelType) === (not === undefined),
  ).map(
    (family) =>
      (isSet = true) =>
        family.describe({ ...configOf(family), ...(isSet ? json : {}) }, 'config.json', 'f32').config,
  );
}

describe('docs/families.md', () => {
  it('lists the families of the registry', () => {
    const listed = tableOf('Families that are read').map(([name, type, covers]) => [
      codeIn(name),
      codeIn(type)[0],
      covers,
    ]);
    expect(listed).toEqual(
      ARCHITECTURES.map(({ name, otherNames = [], modelType, covers }) => [[name, ...otherNames], modelType, covers]),
    );
  });

  it('lists settings that every family it names reads', () => {
    for (const [setting, meaning = ''] of tableOf('Settings that are read')) {
      const attempts = describeWith(codeIn(setting)[0]!, meaning);
      expect(attempts.length, setting).toBeGreaterThan(0);
      // Swish is SiLU under another name; every other setting changes the model.
      for (const attempt of attempts)
        if (meaning.startsWith('another name')) expect(attempt(), setting).toEqual(attempt(false));
        else expect(attempt(), setting).not.toEqual(attempt(false));
    }
  });

  it('lists families that are refused by name', () => {
    for (const name of tableOf('Families that are refused').flatMap(([names]) => codeIn(names)))
      expect(() => findArchitecture({ architectures: [name] }, 'config.json'), name).toThrow(
        `architecture "${name}" is not supported`,
      );
  });

  it('lists settings that are refused', () => {
    for (const [setting, why = ''] of tableOf('Settings that are refused')) {
      const attempts = describeWith(codeIn(setting)[0]!, why);
      expect(attempts.length, setting).toBeGreaterThan(0);
      for (const attempt of attempts) expect(() => attempt(), setting).toThrow(UserError);
    }
  });
});
