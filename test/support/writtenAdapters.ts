/** Adapters of the small model of the end-to-end tests, made up and written as PEFT writes them. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { random, safetensorsFile, SHAPES, type StoredTensor } from '../e2e/smallModel.js';
import { temporaryFolder } from '../e2e/support.js';

export const ALL_LINEAR = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] as const;

export interface WrittenAdapter {
  readonly seed: number;
  readonly rank?: number;
  readonly targets?: readonly (typeof ALL_LINEAR)[number][];
  /** Where it is written. Default: a new folder. */
  readonly dir?: string;
}

/** A folder with an adapter that changes what the model answers. */
export function writeAdapter({ seed, rank = 4, targets = ALL_LINEAR, dir }: WrittenAdapter): string {
  const folder = dir ?? join(temporaryFolder(), `adapter-${seed}`);
  mkdirSync(folder, { recursive: true });
  const next = random(seed);
  const values = (shape: readonly number[]): Float32Array =>
    Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => (next() - 0.5) * 0.8);
  const tensors = [...SHAPES].flatMap(([name, shape]): StoredTensor[] => {
    if (!targets.some((target) => name.endsWith(`.${target}.weight`))) return [];
    const module = `base_model.model.${name.replace(/\.weight$/, '')}`;
    const [a, b] = [
      [rank, shape[1]!],
      [shape[0]!, rank],
    ] as const;
    return [
      { name: `${module}.lora_A.weight`, shape: a, values: values(a) },
      { name: `${module}.lora_B.weight`, shape: b, values: values(b) },
    ];
  });
  writeFileSync(join(folder, 'adapter_model.safetensors'), safetensorsFile(tensors));
  writeFileSync(
    join(folder, 'adapter_config.json'),
    JSON.stringify({
      ...{ peft_type: 'LORA', task_type: 'CAUSAL_LM', base_model_name_or_path: 'small', bias: 'none' },
      ...{ r: rank, lora_alpha: 2 * rank, target_modules: targets },
    }),
  );
  return folder;
}
