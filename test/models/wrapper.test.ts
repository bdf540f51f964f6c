/** Language models inside multimodal ones. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../models/checkpoint.js';
import { describeModel } from '../../models/config.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import { layOut, safetensors, SMALL_CONFIG, temporaryFolder, userError, writeJson } from './support.js';

const { architectures: _, torch_dtype, tie_word_embeddings, ...text } = SMALL_CONFIG;
const WRAPPED = {
  architectures: ['LlavaForConditionalGeneration'],
  model_type: 'llava',
  torch_dtype,
  tie_word_embeddings,
  vision_config: { hidden_size: 4 },
  text_config: text,
};
const alone = describeModel(SMALL_CONFIG, 'config.json');

/** A checkpoint of the wrapped model, whose tensors `rename` names, with `more` tensors. */
function folder(rename: (name: string) => string, more: readonly string[] = []): string {
  const dir = temporaryFolder();
  writeJson(dir, 'config.json', WRAPPED);
  const own = alone.tensors.map(({ name, shape }) => [rename(name), shape] as const);
  const { header, size } = layOut([...own, ...more.map((name) => [name, [2]] as const)]);
  writeFileSync(join(dir, 'model.safetensors'), safetensors(header, size));
  return dir;
}

describe('a multimodal model', () => {
  it('is read as the language model that its text_config describes', () => {
    const model = describeModel(WRAPPED, 'config.json');
    expect(model.config).toEqual(alone.config);
    expect(model.summary).toContain('the language model of a multimodal one, hidden 8');
    const own = { ...text, torch_dtype: 'float16', eos_token_id: 3 };
    expect(describeModel({ ...WRAPPED, text_config: own, eos_token_id: 2 }, 'config.json').config).toMatchObject({
      dtype: 'f16',
      eosTokenIds: [3],
    });
  });

  it.each([
    ['transformers 4', (name: string): string => `language_model.${name}`],
    ['transformers 5', (name: string): string => name.replace(/^model\./, 'model.language_model.')],
    ['models that keep their names', (name: string): string => name],
  ])('has tensors with the names of %s; those of other modules are left alone', (_what, rename) => {
    const dir = folder(rename, ['vision_tower.blocks.0.weight', 'model.visual.norm.weight', 'multi_modal_projector.w']);
    const { tensors, config } = openCheckpoint(dir);
    expect([...tensors.keys()]).toEqual(alone.tensors.map(({ name }) => name));
    expect(config).toEqual(alone.config);
    expect([...describeRandomCheckpoint(dir, 1).tensors.keys()]).toEqual([...tensors.keys()]);
  });

  it('is refused in one line where it is not understood', () => {
    const refusal = (changes: object): string =>
      userError(() => describeModel({ ...WRAPPED, ...changes }, 'config.json')).message;
    expect(refusal({ text_config: [] })).toBe('config.json: text_config: expected an object, got []');
    expect(refusal({ text_config: {} })).toContain('config.json: text_config: neither architectures nor model_type');
    expect(refusal({ text_config: { ...text, model_type: 'mamba' } })).toContain('model_type "mamba" is not supported');
    expect(refusal({ text_config: { ...text, hidden_size: 0 } })).toContain('text_config: hidden_size: expected');
  });

  it.each([
    ['llama', { heads: 32, kvHeads: 32, hiddenSize: 4096, intermediateSize: 11_008, layers: 32, vocabSize: 32_064 }],
    ['mistral', { heads: 32, kvHeads: 8, hiddenSize: 4096, intermediateSize: 14_336, layers: 32, vocabSize: 32_064 }],
    ['qwen2', { heads: 32, kvHeads: 32, hiddenSize: 4096, intermediateSize: 22_016, layers: 32, vocabSize: 32_064 }],
    ['qwen3', { heads: 32, kvHeads: 32, headDim: 128, intermediateSize: 22_016, layers: 32, vocabSize: 32_064 }],
    ['gemma', { heads: 16, kvHeads: 16, headDim: 256, intermediateSize: 24_576, layers: 28, vocabSize: 32_064 }],
    ['gemma2', { heads: 8, kvHeads: 4, headDim: 256, intermediateSize: 9216, layers: 26, vocabSize: 32_064 }],
    ['gemma3_text', { heads: 8, kvHeads: 4, headDim: 256, intermediateSize: 9216, layers: 26, vocabSize: 32_064 }],
  ])(
    '%s may leave sizes to the defaults of transformers, as LLaVA 1.5 does, and has none outside of one',
    (type, sizes) => {
      const text_config = { model_type: type, vocab_size: 32_064 };
      expect(describeModel({ ...WRAPPED, text_config }, 'config.json').config).toMatchObject(sizes);
      expect(userError(() => describeModel(text_config, 'config.json')).message).toContain(
        'hidden_size: expected a whole number from 1 to 65536, got nothing',
      );
    },
  );

  it('has no tensor twice and none that nobody knows', () => {
    const twice = folder((name) => name, ['language_model.model.norm.weight']);
    expect(userError(() => openCheckpoint(twice)).message).toContain(
      'two tensors are "model.norm.weight" of the language model',
    );
    const stray = folder((name) => name, ['adapter.weight']);
    expect(userError(() => openCheckpoint(stray)).message).toContain('adapter.weight: not a tensor of this model');
  });
});
