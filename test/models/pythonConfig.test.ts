/** Files of a checkpoint that Python has written: NaN and infinities where nobody needs them, and where they count. */
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import { findChatTemplate } from '../../models/chat/template.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import { describeModel } from '../../models/config.js';
import { ARCHITECTURES } from '../../models/families/registry.js';
import { readGenerationConfig } from '../../models/generationConfig.js';
import type { Architecture } from '../../models/model/model.js';
import { readQuantization } from '../../models/quantized/index.js';
import { describeTokenizer } from '../../models/tokenizer/files.js';
import { DEMO, layOut, safetensors, SMALL_CONFIG, temporaryFolder, userError, writeJson } from './support.js';
import { casesHere } from '../support/thorough.js';

/** The object of a JSON file with more of it, as Python would write it. */
function withWords(dir: string, name: string, more: string): void {
  const path = join(dir, name);
  writeFileSync(path, readFileSync(path, 'utf8').replace(/\}\s*$/, `, ${more}}`));
}

it('reads a checkpoint whose files have NaN and infinities in keys that nobody needs', () => {
  const dir = temporaryFolder();
  cpSync(DEMO, dir, { recursive: true });
  const [plain, tokenizer] = [openCheckpoint(DEMO), describeTokenizer(DEMO)];
  withWords(dir, 'config.json', '"router_jitter": NaN, "loss": [-Infinity, {"best": Infinity}]');
  writeFileSync(join(dir, 'generation_config.json'), '{"eos_token_id": 7, "do_sample": true, "top_p": NaN, "x": NaN}');
  writeFileSync(join(dir, 'tokenizer_config.json'), '{"model_max_length": Infinity, "chat_template": "NaN {{ 1 }}"}');
  const checkpoint = openCheckpoint(dir);
  expect(checkpoint.config).toEqual(plain.config);
  expect(checkpoint.fingerprint()).toBe(plain.fingerprint());
  expect(readGenerationConfig(checkpoint, {})).toEqual({
    eosTokenIds: new Set([...plain.config.eosTokenIds, 7]),
    suggested: undefined,
  });
  expect(describeTokenizer(dir).hash).toBe(tokenizer.hash);
  expect(findChatTemplate(dir)?.text).toBe('NaN {{ 1 }}');
});

it('reads an index of shards with NaN in what it says of them', () => {
  const dir = temporaryFolder();
  writeJson(dir, 'config.json', SMALL_CONFIG);
  const { header, size } = layOut(
    describeModel(SMALL_CONFIG, 'x').tensors.map(({ name, shape }) => [name, shape] as const),
  );
  writeFileSync(join(dir, 'a.safetensors'), safetensors(header, size));
  const map = JSON.stringify(Object.fromEntries(Object.keys(header).map((name) => [name, 'a.safetensors'])));
  writeFileSync(join(dir, 'model.safetensors.index.json'), `{"metadata": {"loss": NaN}, "weight_map": ${map}}`);
  expect(openCheckpoint(dir).config.layers).toBe(3);
  writeFileSync(
    join(dir, 'model.safetensors.index.json'),
    `{"weight_map": ${map.replace('"a.safe', 'NaN, "y": "a.safe')}}`,
  );
  expect(userError(() => openCheckpoint(dir)).message).toMatch(/: NaN is not the name of a \.safetensors file/);
});

it('names a needed value of generation_config.json and of a quantization', () => {
  const dir = temporaryFolder();
  writeFileSync(join(dir, 'generation_config.json'), '{"eos_token_id": [NaN]}');
  const { config } = openCheckpoint(DEMO);
  expect(userError(() => readGenerationConfig({ path: dir, config }, {})).message).toContain('eos_token_id');
  for (const key of ['bits', 'group_size']) {
    const quantization_config = { quant_method: 'gptq', bits: 4, group_size: 32, desc_act: false, [key]: NaN };
    const { message } = userError(() => readQuantization(dir, { quantization_config }, 'config.json'));
    expect(message).toContain(key);
    expect(message).toContain('NaN');
  }
});

const configOf = ({ name, modelType }: Architecture): Record<string, unknown> => ({
  architectures: [name],
  model_type: modelType,
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  ...(modelType === 'gpt_neox' ? {} : { num_key_value_heads: 4 }),
  vocab_size: 256,
  max_position_embeddings: 1024,
  ...(modelType === 'mamba2' ? { num_heads: 8, head_dim: 16 } : {}),
});

/** Families that turn nothing, or not by YaRN. */
const WITHOUT_YARN = ['phi3', 'hunyuan_v1_dense', 'gpt2', 'opt', 'bloom', 'mpt', 'llama4_text', 'mamba2'];

/** Keys of some family or other. */
const KEYS =
  'attention_bias attention_multiplier attention_out_bias attn_logit_softcapping bos_token_id ' +
  'decoder_sparse_step dtype embedding_multiplier eos_token_id final_logit_softcapping ' +
  'head_dim hidden_act hidden_activation hidden_size intermediate_size layer_norm_eps ' +
  'layer_types logit_scale logits_scaling max_position_embeddings max_window_layers mlp_bias ' +
  'mlp_only_layers moe_intermediate_size no_rope_layer_interval no_rope_layers norm_epsilon ' +
  'norm_topk_prob num_attention_heads num_experts num_experts_per_tok num_hidden_layers ' +
  'num_key_value_heads num_local_experts partial_rotary_factor qk_layernorm qkv_bias ' +
  'query_pre_attn_scalar residual_multiplier rms_norm_eps rope_parameters ' +
  'rope_local_base_freq rope_scaling rope_theta rotary_emb_base rotary_pct ' +
  'shared_expert_intermediate_size sliding_window sliding_window_pattern tie_word_embeddings ' +
  'torch_dtype use_bias use_parallel_residual use_qkv_bias use_sliding_window vocab_size';

/** Whether some number in `value` is none. */
const hasNaN = (value: unknown): boolean =>
  Number.isNaN(value) || (typeof value === 'object' && value !== null && Object.values(value).some(hasNaN));

describe.each(ARCHITECTURES.map((family) => [family.modelType, family] as const))('%s', (_, family) => {
  it.each(casesHere([NaN, Infinity, -Infinity], 0))(
    'refuses %s by name where it needs a value, and never computes with it',
    (word) => {
      const base = configOf(family);
      const plain = describeModel(base, 'config.json').config;
      let refused = 0;
      for (const key of KEYS.split(' ')) {
        try {
          const { config } = describeModel({ ...base, [key]: word }, 'config.json');
          // The family has no such setting.
          expect(config, key).toEqual(plain);
          expect(hasNaN(config), key).toBe(false);
        } catch (error) {
          if (!(error instanceof UserError)) throw error;
          expect(error.message, key).toContain(key);
          expect(error.message, key).toContain(String(word));
          refused++;
        }
      }
      // Those that turn nothing have fewer keys.
      const fewer: Readonly<Record<string, number>> = { gpt2: 8, opt: 8, bloom: 5, mpt: 2 };
      expect(refused).toBeGreaterThan(fewer[family.modelType] ?? 12);
    },
  );

  it('refuses NaN within rotary settings', () => {
    const scaling = {
      rope_type: 'yarn',
      factor: 4,
      original_max_position_embeddings: 256,
      beta_fast: 32,
      beta_slow: 1,
    };
    for (const key of ['factor', 'original_max_position_embeddings', 'beta_fast', 'rope_theta']) {
      const rope_parameters = { ...scaling, [key]: NaN };
      if (WITHOUT_YARN.includes(family.modelType)) continue;
      const read = (): unknown => describeModel({ ...configOf(family), rope_parameters }, 'config.json');
      expect(userError(read).message).toContain(`${key}: expected a number`);
    }
  });
});
