/** The adapters in the data folder beside the repository, which PEFT wrote, and the references of their scores. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { run } from '../../commands/run.js';
import { ROOT, temporaryFolder } from '../e2e/support.js';
import { SILENT } from './silent.js';

const SHARED = join(ROOT, '..', 'shared');
const CHECKPOINTS = join(SHARED, 'checkpoints');
export const ADAPTERS = join(CHECKPOINTS, 'adapters');

/** Those of which all rides beside the base's matrices. */
export const RIDING = [
  'mistral-qv',
  'mistral-all-rs',
  'mistral-layers',
  'mistral-regex-layers',
  'mixtral-attention',
  'phi3-fused',
  'qwen2-patterns',
  'gemma2-all',
] as const;

/** Those that replace tensors of their base: heads, embeddings, biases, matrices with magnitudes. */
export const REPLACING = ['mistral-embed', 'mistral-save', 'qwen2-dora', 'gpt-neox-bias'] as const;

/** The checkpoint that an adapter was made for. */
export function baseOf(adapter: string): string {
  const json: unknown = JSON.parse(readFileSync(join(ADAPTERS, adapter, 'adapter_config.json'), 'utf8'));
  const { base_model_name_or_path: base } = json as { readonly base_model_name_or_path: string };
  return join(CHECKPOINTS, base);
}

/** Questions of HellaSwag, scored in f32 with an adapter. */
export async function scoreAdapted(
  adapter: string,
  { limit, batchTokens }: { readonly limit: number; readonly batchTokens?: number },
): Promise<{ readonly samplesPath: string; readonly results: Readonly<Record<string, unknown>> }> {
  const { samplesPath, results } = await run(
    {
      model: baseOf(adapter),
      adapter: { name: adapter, path: join(ADAPTERS, adapter) },
      init: { kind: 'checkpoint' },
      precision: 'f32',
      task: 'hellaswag',
      data: join(SHARED, 'data', 'hellaswag_val.jsonl.gz'),
      sharing: 'tree',
      threads: 2,
      limit,
      output: temporaryFolder(),
      resume: false,
      ...(batchTokens === undefined ? {} : { batchTokens }),
    },
    SILENT,
  );
  if (samplesPath === undefined) throw new Error('no samples were written');
  return { samplesPath, results };
}

/** What the checker says, with its defaults. */
export function compareWithGolden(samplesPath: string, golden: string): string {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [join(SHARED, 'check', 'compare-golden.mjs'), samplesPath, join(SHARED, 'golden', golden)],
    { encoding: 'utf8' },
  );
  expect({ status, stdout, stderr }).toMatchObject({ status: 0, stderr: '' });
  return stdout;
}
