/** Plans of artifacts: what every arithmetic and cache compiles to is read as it was written. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { PlanOptions } from '../../driver/artifact/planCache.js';
import { parsePlan, printPlan } from '../../driver/artifact/planJson.js';
import { compileModel } from '../../driver/compile/compile.js';
import { checkPlan, legalityOf } from '../../driver/plan.js';
import type { KvCache } from '../../driver/precision.js';
import { cpu } from '../../driver/targets/cpu.js';
import { cpuDevice, detectMachine } from '../../driver/targets/cpuDevice.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import type { Target } from '../../driver/targets/target.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import { randomFamily } from '../support/families.js';
import { casesHere } from '../support/thorough.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-plans-'));
afterAll(() => rmSync(root, { recursive: true }));

function checkpointOf(type: string): Checkpoint {
  const path = join(root, `${type}.json`);
  const sizes = { hidden_size: 256, intermediate_size: 512, num_attention_heads: 4, num_key_value_heads: 2 };
  const config = { ...randomFamily(type, 5), ...sizes, head_dim: 64, num_hidden_layers: 4, layer_types: undefined };
  writeFileSync(path, JSON.stringify(config));
  return describeRandomCheckpoint(path, 1);
}

function expectRead<S, D>(checkpoint: Checkpoint, target: Target<S, D>, device: D, options: PlanOptions): void {
  const { plan } = compileModel(checkpoint, target, device, { batchTokens: 256, cacheTokens: 256, ...options });
  const read = parsePlan(printPlan(plan), 'plan.json', 'compile again', target.compiler.scheduling.schema);
  expect(JSON.parse(printPlan(read))).toEqual(JSON.parse(printPlan(plan)));
  checkPlan(read, legalityOf(target.compiler.scheduling, device));
}

const CACHES: readonly { readonly kvCache?: KvCache }[] = [{}, { kvCache: 'fp8' }, { kvCache: 'int8' }];
const FAMILIES = ['llama', 'qwen3', 'gemma2', 'mixtral', 'olmo2'];

describe.each(casesHere(FAMILIES, 0, 3))('plans of %s', (type) => {
  const checkpoint = checkpointOf(type);

  // Compiling takes seconds: in CI each family has one of the caches.
  it.each(casesHere(CACHES, FAMILIES.indexOf(type) % CACHES.length))('are read on a GPU, with %j', (cache) => {
    for (const precision of ['bf16', 'fp8'] as const)
      expectRead(checkpoint, cuda, cudaDevice(TYPICAL_FACTS.sm_90a, precision), cache);
  });

  it('are read with slots for adapters', () => {
    expectRead(checkpoint, cpu, cpuDevice(detectMachine(), 'f32'), { adapters: { slots: 3, rank: 16 } });
  });

  it.each(casesHere(CACHES, (FAMILIES.indexOf(type) + 1) % CACHES.length))('are read on a CPU, with %j', (cache) => {
    for (const precision of ['f32', 'int8'] as const)
      expectRead(checkpoint, cpu, cpuDevice(detectMachine(), precision), cache);
  });
});
