/** Goldens of reward models in the data folder beside the repository, and the checkpoints as they were computed. */
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { roundToDType } from '../../ir/round.js';

export interface Golden {
  readonly id: number;
  readonly question: string;
  readonly steps: readonly string[];
  readonly tokens: readonly number[];
  readonly rows: readonly number[];
  /** By transformers, in float64. */
  readonly scores: readonly number[];
}

/** Heads of classes, and verifiers that are language models. */
export const CLASS_VERIFIERS = [
  'gemma2-seqcls',
  'llama-seqcls',
  'qwen-prm',
  'qwen-rm',
  'qwen2-tokcls',
  'skywork-prm',
] as const;
export const VERIFIERS = [...CLASS_VERIFIERS, 'math-shepherd-prm', 'rlhflow-prm'] as const;
export type VerifierName = (typeof VERIFIERS)[number];

/**
 * Mean and largest difference of a score from the golden one where everything is rounded as a GPU rounds it in bf16:
 * kernel IR, interpreted (test/slow/verifierRounding.test.ts).
 */
export const BF16_ERRORS: Readonly<Record<(typeof CLASS_VERIFIERS)[number], readonly [mean: number, most: number]>> = {
  'gemma2-seqcls': [0.0061, 0.019],
  'llama-seqcls': [0.0089, 0.029],
  'qwen-prm': [0.0018, 0.008],
  'qwen-rm': [0.0078, 0.017],
  'qwen2-tokcls': [0.0024, 0.011],
  'skywork-prm': [0.0024, 0.011],
};

export const goldensOf = (shared: string, name: VerifierName): readonly Golden[] =>
  readFileSync(join(shared, 'golden', 'verifiers', `${name}.jsonl`), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Golden);

/**
 * A folder in `parent` with the checkpoint as the goldens were computed: their rotary frequencies had been rounded to
 * bf16 with the weights, which moves scores by up to 0.05. A copy of config.json states these frequencies, as factors
 * of the exact ones.
 */
export function asComputed(shared: string, name: VerifierName, parent: string): string {
  const from = join(shared, 'checkpoints', 'verifiers', name);
  const folder = join(parent, name);
  mkdirSync(folder);
  for (const file of readdirSync(from)) if (file !== 'config.json') symlinkSync(join(from, file), join(folder, file));
  const config = JSON.parse(readFileSync(join(from, 'config.json'), 'utf8')) as {
    readonly head_dim?: number;
    readonly hidden_size: number;
    readonly num_attention_heads: number;
    readonly max_position_embeddings: number;
    readonly rope_parameters: { readonly rope_theta: number };
  };
  const headDim = config.head_dim ?? config.hidden_size / config.num_attention_heads;
  const { rope_theta } = config.rope_parameters;
  const factors = Array.from({ length: headDim / 2 }, (_, pair) => {
    const exact = rope_theta ** ((-2 * pair) / headDim);
    return exact / roundToDType(exact, 'bf16');
  });
  const rope_parameters = {
    rope_type: 'longrope',
    rope_theta,
    short_factor: factors,
    long_factor: factors,
    original_max_position_embeddings: config.max_position_embeddings,
    factor: 1,
  };
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, rope_parameters }));
  return folder;
}

/** JSON lines of some fields. */
export const linesOf = (goldens: readonly Golden[], fields: readonly (keyof Golden)[]): string =>
  goldens.map((golden) => JSON.stringify(Object.fromEntries(fields.map((name) => [name, golden[name]])))).join('\n');

/** Mean and largest difference of scores from golden ones. */
export function errorsOf(
  found: readonly (readonly number[])[],
  goldens: readonly Golden[],
): readonly [mean: number, most: number] {
  const off = goldens.flatMap(({ scores }, i) => scores.map((score, row) => Math.abs(score - found[i]![row]!)));
  if (off.some((each) => Number.isNaN(each))) throw new Error('a score is missing');
  return [off.reduce((sum, each) => sum + each, 0) / off.length, Math.max(...off)];
}
