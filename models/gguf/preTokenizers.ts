/**
 * The rules by which byte-level tokenizers of GGUF files cut texts: tokenizer.ggml.pre names the tokenizer that a file
 * was made from, and many cut alike. Source of the names: llama.cpp's llama-vocab.cpp.
 */
import * as rules from '../tokenizers/rules.js';
import type { ByteLevelRule } from '../tokenizers/rules.js';

const NAMES: readonly (readonly [ByteLevelRule, string])[] = [
  [rules.LLAMA_3, 'llama-bpe llama3 llama-v3 falcon3 falcon-h1 lfm2 midm-2.0 pixtral'],
  [rules.DBRX, 'dbrx smaug-bpe glm4 chatglm-bpe'],
  [rules.QWEN, 'qwen2 deepseek-r1-qwen f2llmv2 hunyuan kormo megrez stablelm2'],
  [rules.GROK_2, 'grok-2 solar-open'],
  [rules.QWEN_3_5, 'qwen35'],
  [rules.GPT_4O, 'gpt-4o kanana2 llama4 minimax-m2 talkie'],
  [rules.TEKKEN, 'tekken'],
  [rules.GPT_2, 'gpt-2 a.x-4.0 exaone4 gigachat granite-docling jais mellum phi-2 trillion'],
  [rules.GPT_NEOX, 'olmo mpt'],
  [rules.STARCODER, 'starcoder codeshell exaone mellum2 minerva-7b refact smollm'],
  [rules.COMMAND_R, 'command-r'],
  [rules.DEEPSEEK_LLM, 'deepseek-llm'],
  [rules.DEEPSEEK_CODER, 'deepseek-coder'],
  [rules.DEEPSEEK_V3, 'deepseek-v3 hunyuan-dense hy_v4 joyai-llm'],
  [rules.FALCON, 'falcon'],
  [rules.BLOOM, 'bloom gpt3-finnish poro-chat'],
  [rules.VIKING, 'viking'],
  [rules.BAILING_MOE, 'bailingmoe bailingmoe2 llada-moe'],
  [rules.SEED_CODER, 'seed-coder'],
  [rules.MINICPM_5, 'minicpm5'],
];

const RULES: ReadonlyMap<string, ByteLevelRule> = new Map(
  NAMES.flatMap(([rule, names]) => names.split(' ').map((name): [string, ByteLevelRule] => [name, rule])),
);

/** The rule that a tokenizer.ggml.pre names; undefined if none is known. */
export const preTokenizerOf = (name: string): ByteLevelRule | undefined => RULES.get(name);

/** Every tokenizer.ggml.pre whose rule is known. */
export const PRE_TOKENIZERS: readonly string[] = [...RULES.keys()];
