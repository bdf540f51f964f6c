/**
 * Adapters beside weights of 4 bits in groups on a real device: every tile has the same bits, rows without adapter have
 * those of a kernel without adapters, and a row has the same in any company. Against float64 too. Then a whole model:
 * answers of each text alone, and near those of decoded matrices with the same adapter.
 */
import assert from 'node:assert/strict';
import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { isLegalCuda } from '../../codegen/cuda/index.js';
import { openAdapted } from '../../driver/adapters/open.js';
import type { AdapterRef } from '../../engine/device.js';
import { Engine } from '../../engine/engine.js';
import type { CudaGemmSchedule } from '../../ir/cuda.js';
import { ROW_PAD } from '../../ir/plan.js';
import { roundUp } from '../../ir/types.js';
import {
  arrangeAdapters,
  arrangeBase,
  interpretAdapters,
  outputsOf,
  type RowsOfAdapters,
  withAdapters,
} from '../codegen/cuda/adapterCases.js';
import type { Arranged } from '../codegen/cuda/emulate.js';
import { inGroups, layerGemm } from '../codegen/cuda/wgmmaKernels.js';
import { quantizedTensors, safetensorsOf, writeQuantized } from '../support/quantizedCheckpoints.js';
import { randomNumbers } from '../support/numbers.js';
import { float, gptqWriter, type StoredBytes } from '../support/quantizeMatrix.js';
import { checkAdapted, same } from './adaptedRows.js';
import { DEMO } from './command.js';
import { deviceHere } from './device.js';
import { Launcher } from './launcher.js';
import { CACHE_TOKENS, loadOnDevice, randomTokens, stepperFor } from './sequences.js';
import { temporaryFolder } from './support.js';

const { arch, skip } = await deviceHere();

const grouped = (tm: number, tn: number, tk: number, stages: number): CudaGemmSchedule => ({
  ...{ kind: 'gemm', skeleton: 'grouped', cluster: 1, raster: 1, mode: 'cooperative' },
  ...{ tm, tn, tk, stages },
});

/** Warps that divide k by 1, 2 and 4; rings that hold fewer second factors than tiles have, and more. */
const SCHEDULES = [
  grouped(8, 32, 512, 3),
  grouped(8, 128, 128, 2),
  grouped(16, 96, 256, 4),
  grouped(32, 64, 256, 3),
  grouped(64, 128, 128, 6),
  grouped(64, 32, 512, 2),
];
/** Of 640 columns, quarters are 2, 2, 1 and 0 blocks. */
const SHAPE = [512, 640, 64] as const;

const CASES = [
  ['qkv', 16, 128, 'bf16'],
  ['gateUp', 16, 32, 'f16'],
  ['gateUp', 64, 64, 'bf16'],
  ['o', 128, 64, 'f16'],
  ['down', 48, 128, 'bf16'],
] as const;

/** 70 rows: two tiles of 64, with base rows and every slot among them. */
const MIXED = Array.from({ length: 70 }, (_, i) => (i % 7 === 3 ? -1 : (i * 5) % 24));
/** Some of them, in other company. */
const CHOSEN = [64, 1, 3, 40];

const isHopper = arch === 'sm_90a' ? skip : 'weights stay in 4 bits on Hopper';

describe('products of weights in groups with adapters', { skip: isHopper }, () => {
  let launcher: Launcher;
  before(() => {
    assert(typeof arch === 'string');
    launcher = new Launcher(arch);
  });
  after(() => launcher.release());

  for (const [which, rank, group, half] of CASES)
    it(`${which} of rank ${rank}, groups of ${group}, ${half}`, async () => {
      const own = withAdapters(inGroups(layerGemm(which, ...SHAPE, half), group), { slots: 24, rank });
      const legal = SCHEDULES.filter((each) => isLegalCuda(own.kernel, own.module, each, launcher.facts) === true);
      assert(legal.length >= 4, 'few tiles take adapters');
      const all: RowsOfAdapters = { slots: MIXED };
      const few: RowsOfAdapters = { slots: CHOSEN.map((row) => MIXED[row]!), rows: CHOSEN };
      const arranged = legal.map((gemm) => ({ gemm, at: arrangeAdapters(own, all, { gemm }) }));
      const apart = arrangeAdapters(own, few, { gemm: legal[0]! });
      const base = arrangeBase(own, all, legal[0]!);
      // All at once: compilers take seconds for each.
      await launcher.load([...arranged.map(({ at }) => at), apart, base].flatMap(({ emitted }) => emitted));
      const run = async ({ emitted, memory, values }: Arranged, rows: number) => {
        // Tensor maps show the rows that memory has.
        for (const text of emitted) await launcher.launch(text, memory, { T: rows, R: 1 }, roundUp(rows, ROW_PAD));
        return outputsOf(own, values(), rows);
      };

      const got = await run(arranged[0]!.at, MIXED.length);
      for (const { gemm, at } of arranged.slice(1))
        for (const [name, rows] of await run(at, MIXED.length))
          rows.forEach((row, i) => same(row, got.get(name)![i]!, `${name} of row ${i} by ${JSON.stringify(gemm)}`));
      for (const [name, rows] of await run(apart, CHOSEN.length))
        rows.forEach((row, i) => same(row, got.get(name)![CHOSEN[i]!]!, `${name} of row ${CHOSEN[i]}, apart`));
      const without = await run(base, MIXED.length);
      const expected = outputsOf(own, interpretAdapters(own, all), MIXED.length);
      checkAdapted(got, without, expected, MIXED);
    });
});

const CONFIG = {
  ...{ architectures: ['LlamaForCausalLM'], model_type: 'llama', torch_dtype: 'bfloat16', hidden_size: 512 },
  ...{ intermediate_size: 1024, num_hidden_layers: 3, num_attention_heads: 8, num_key_value_heads: 2, head_dim: 64 },
  ...{ vocab_size: 2000, max_position_embeddings: 2048, rms_norm_eps: 1e-5, tie_word_embeddings: false },
};
const SLOTS = { slots: 3, rank: 16 };
const MODULES = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'];

/** A GPTQ checkpoint, and adapters of it. */
function writeModel(): { readonly model: string; readonly adapters: readonly AdapterRef[] } {
  const model = temporaryFolder();
  const write = gptqWriter({ bits: 4, size: 128, isSymmetric: false, dtype: 'F16', version: 1 });
  const config = { quant_method: 'gptq', bits: 4, group_size: 128, desc_act: false, sym: false };
  const { tensors, meant } = quantizedTensors(CONFIG, write, 5);
  writeQuantized(model, CONFIG, { config, write }, safetensorsOf(tensors));
  copyFileSync(join(DEMO, 'tokenizer.json'), join(model, 'tokenizer.json'));
  const adapters = [1, 2, 3].map((seed): AdapterRef => {
    const [adapterDir, rank, random] = [temporaryFolder(), 5 * seed, randomNumbers(seed)];
    const targets = seed === 2 ? ['q_proj', 'down_proj'] : MODULES;
    const factor = (rows: number, columns: number): StoredBytes =>
      float(
        'F32',
        [rows, columns],
        Float64Array.from({ length: rows * columns }, () => random() / 2),
      );
    const factors = [...meant].flatMap(([name, { shape }]) => {
      const [rows = 0, columns = 0] = shape;
      const module = `base_model.model.${name.slice(0, -'.weight'.length)}`;
      return targets.some((target) => module.endsWith(`.${target}`))
        ? ([
            [`${module}.lora_A.weight`, factor(rank, columns)],
            [`${module}.lora_B.weight`, factor(rows, rank)],
          ] as const)
        : [];
    });
    writeFileSync(join(adapterDir, 'adapter_model.safetensors'), safetensorsOf(new Map(factors)));
    const own = { peft_type: 'LORA', task_type: 'CAUSAL_LM', r: rank, lora_alpha: 2 * rank, target_modules: targets };
    writeFileSync(join(adapterDir, 'adapter_config.json'), JSON.stringify(own));
    const { adapter } = openAdapted(model, { kind: 'checkpoint' }, { adapterDir });
    return { hash: adapter!.hash, path: adapter!.path };
  });
  return { model, adapters };
}

describe('a model of 4 bits with adapters', { skip: isHopper }, () => {
  it('answers as each text alone, without adapter as a model without slots, and near decoded matrices', async () => {
    const { model, adapters } = writeModel();
    const request = { model, init: { kind: 'checkpoint' }, threads: 2 } as const;
    const asked = [undefined, ...adapters, adapters[0], undefined].map((adapter, i) => ({
      prompt: randomTokens(70 + i, [3, 40, 130, 9, 300, 17][i]!),
      ...{ maxNewTokens: 10, scoreFrom: 1 },
      ...(adapter === undefined ? {} : { adapter }),
    }));
    const answer = async (engine: Engine, each: (typeof asked)[number]) => {
      const { tokens, promptScores } = await engine.generate(each);
      return { tokens, scores: promptScores.map(({ logProb }) => logProb) };
    };
    const together = async (precision: 'int4' | 'bf16', requests: typeof asked, hasSlots = true) => {
      const loaded = await loadOnDevice(request, { precision, ...(hasSlots ? { adapters: SLOTS } : {}) });
      const formats = new Set(loaded.model.plan.weights.map(({ format }) => format));
      assert.equal(formats.has('u4'), precision === 'int4');
      const stepper = stepperFor(loaded, {}, {}, CACHE_TOKENS);
      const engine = Engine.of(stepper);
      const answers = await Promise.all(requests.map((each) => answer(engine, each)));
      const alone = [];
      for (const each of requests) alone.push(await answer(Engine.of(stepper), each));
      await loaded.close();
      assert.deepEqual(answers, alone);
      return answers;
    };
    const got = await together('int4', asked);
    const base = await together(
      'int4',
      asked.map(({ adapter: _, ...each }) => each),
      false,
    );
    const decoded = await together('bf16', asked);
    const mean = (a: readonly number[], b: readonly number[]): number =>
      a.reduce((sum, x, i) => sum + Math.abs(x - b[i]!), 0) / a.length;
    asked.forEach(({ adapter }, i) => {
      const { scores } = got[i]!;
      if (adapter === undefined) return assert.deepEqual(got[i], base[i]);
      const [near, far] = [mean(scores, decoded[i]!.scores), mean(scores, base[i]!.scores)];
      console.log(`text ${i}: ${near.toFixed(4)} from decoded matrices, ${far.toFixed(4)} from no adapter`);
      assert(near < far / 5, `text ${i} is ${near} from decoded matrices and ${far} from no adapter`);
    });
  });
});
