/** Plans in the cache: found by everything that they depend on, used without planning, ignored where damaged. */
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { type PlanInputs, planKey, type PlanOptions } from '../../driver/artifact/planCache.js';
import { compileModel, plannedModel } from '../../driver/compile/compile.js';
import { openModel, storedFormats } from '../../driver/functions.js';
import { hashProgram, programId, STAMP } from '../../driver/program.js';
import { cpu } from '../../driver/targets/cpu.js';
import { cpuDevice, type CpuDevice, detectMachine } from '../../driver/targets/cpuDevice.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice, TYPICAL_FACTS } from '../../driver/targets/cudaDevice.js';
import type { CompiledModel, Target } from '../../driver/targets/target.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { TensorLocation } from '../../models/model/tensors.js';
import { writeCheckpoint } from '../e2e/smallModel.js';
import { FAMILY_CHECKPOINTS, TYPICAL_PLACES } from '../support/familyCheckpoints.js';
import { casesHere } from '../support/thorough.js';

const REPOSITORY = join(import.meta.dirname, '..', '..');
const FAMILIES = join(REPOSITORY, '..', 'shared', 'checkpoints', 'families');

const root = mkdtempSync(join(tmpdir(), 'tilewright-plan-cache-'));
afterAll(() => rmSync(root, { recursive: true }));

let cache = '';
let folder = '';
beforeEach(() => {
  cache = mkdtempSync(join(root, 'cache-'));
  folder = join(cache, 'plans');
  vi.stubEnv('TILEWRIGHT_CACHE', cache);
  // Others verify what each pass leaves of these models.
  vi.stubEnv('TILEWRIGHT_VERIFY', '0');
  return () => vi.unstubAllEnvs();
});

const small = openModel(writeCheckpoint(), { kind: 'checkpoint' });
const host = cpuDevice(detectMachine(), 'f32');
const OPTIONS: PlanOptions = { batchTokens: 64, cacheTokens: 64 };

/** The checkpoint, and how often its model made a graph. */
function counted(checkpoint: Checkpoint): { readonly checkpoint: Checkpoint; readonly graphs: () => number } {
  let graphs = 0;
  const { model } = checkpoint;
  const own: Checkpoint['model'] = {
    ...model,
    graph: (options) => (graphs++, model.graph(options)),
    step: (options) => (graphs++, model.step(options)),
  };
  return { checkpoint: { ...checkpoint, model: own }, graphs: () => graphs };
}

const planOnce = (): { readonly model: CompiledModel; readonly graphs: number } => {
  const { checkpoint, graphs } = counted(small);
  const model = plannedModel(checkpoint, cpu, host, OPTIONS) as CompiledModel;
  return { model, graphs: graphs() };
};

let made: { readonly model: CompiledModel; readonly plans: string } | undefined;
/** Puts an entry into the cache that planning has left: it is made once for all tests. */
const entryOnce = (): CompiledModel => {
  if (made === undefined) {
    const { model } = planOnce();
    made = { model, plans: mkdtempSync(join(root, 'plans-')) };
    cpSync(folder, made.plans, { recursive: true });
  } else cpSync(made.plans, folder, { recursive: true });
  return made.model;
};

const entryPath = (): string => {
  const names = readdirSync(folder);
  expect(names).toHaveLength(1);
  return join(folder, names[0]!);
};

describe('a plan that was made before', () => {
  it('is found without a graph, and is what planning gives', () => {
    const first = planOnce();
    expect(first.graphs).toBe(2);
    const second = planOnce();
    expect(second.graphs).toBe(0);
    const { known, ...model } = second.model;
    expect(model).toStrictEqual(compileModel(small, cpu, host, OPTIONS));
    expect(known?.digest).toBe(first.model.known?.digest);
  });

  it('is a file of this user alone', () => {
    planOnce();
    expect(entryPath()).toMatch(/\/[0-9a-f]{64}\.twp$/);
    expect(statSync(entryPath()).mode & 0o777).toBe(0o600);
    expect(statSync(folder).mode & 0o777).toBe(0o700);
  });

  it('is marked as used when it is found', () => {
    entryOnce();
    utimesSync(entryPath(), 1000, 1000);
    planOnce();
    expect(statSync(entryPath()).mtimeMs).toBeGreaterThan(1_000_000_000);
  });

  it('is neither sought nor kept where the settings say so', () => {
    vi.stubEnv('TILEWRIGHT_PLAN_CACHE', 'none');
    expect([planOnce().graphs, planOnce().graphs]).toEqual([2, 2]);
    expect(existsSync(folder)).toBe(false);
  });

  it('is not kept where there is no folder for it, which is no error', () => {
    vi.stubEnv('TILEWRIGHT_CACHE', '/proc/nowhere');
    expect(planOnce().graphs).toBe(2);
  });

  it.each(['', 'plans'])('is not used where others may write to the folder %j of the cache', (name) => {
    entryOnce();
    chmodSync(join(cache, name), 0o777);
    expect(planOnce().graphs).toBe(2);
  });
});

const HOSTILE: Readonly<Record<string, (path: string) => void>> = {
  empty: (path) => truncateSync(path, 0),
  'only a digest': (path) => truncateSync(path, 32),
  'cut off': (path) => truncateSync(path, statSync(path).size - 1),
  'longer by a byte': (path) => writeFileSync(path, Buffer.concat([readFileSync(path), Buffer.from('}')])),
  'changed by a bit': (path) => {
    const bytes = readFileSync(path);
    bytes[bytes.length >> 1]! ^= 1;
    writeFileSync(path, bytes);
  },
  'too large': (path) => truncateSync(path, (64 << 20) + 1),
  'a link': (path) => {
    renameSync(path, `${cache}/elsewhere`);
    symlinkSync(`${cache}/elsewhere`, path);
  },
  'a folder': (path) => {
    rmSync(path);
    mkdirSync(path);
  },
  'writable by others': (path) => chmodSync(path, 0o666),
  'the entry of another key': (path) => {
    const key = planKey({ checkpoint: small, target: cpu, device: host, options: { ...OPTIONS, batchTokens: 128 } });
    plannedModel(small, cpu, host, { ...OPTIONS, batchTokens: 128 });
    copyFileSync(join(folder, `${key}.twp`), path);
  },
};

describe('an entry that is', () => {
  it.each(Object.keys(HOSTILE))('%s is ignored and replaced', (name) => {
    const model = entryOnce();
    const path = entryPath();
    HOSTILE[name]!(path);
    const again = planOnce();
    expect(again.graphs).toBe(2);
    expect(again.model.plan).toStrictEqual(model.plan);
    expect(statSync(path).isFile()).toBe(true);
    expect(planOnce().graphs).toBe(0);
  });
});

/** What a key is made of, changed one by one. */
type Change = (planned: PlanInputs<CpuDevice>) => PlanInputs<CpuDevice>;
const withTensor =
  (change: (tensor: TensorLocation) => TensorLocation): Change =>
  ({ checkpoint, ...rest }) => {
    const tensors = new Map(checkpoint.tensors);
    const [name, tensor] = [...tensors][3]!;
    tensors.set(name, change(tensor));
    return { ...rest, checkpoint: { ...checkpoint, tensors } };
  };
const withOptions =
  (change: PlanOptions): Change =>
  ({ options, ...rest }) => ({ ...rest, options: { ...options, ...change } });
const withDevice =
  (change: Partial<CpuDevice>): Change =>
  ({ device, ...rest }) => ({ ...rest, device: { ...device, ...change } });

const CHANGES: Readonly<Record<string, Change>> = {
  'the largest micro-batch': withOptions({ batchTokens: 128 }),
  'the rows of states': withOptions({ cacheRows: 128 }),
  'how keys and values are kept': withOptions({ kvCache: 'int8' }),
  'the mask': withOptions({ mask: 'path' }),
  'whether logits are kept': withOptions({ logits: true }),
  'whether drawn tokens are fed': withOptions({ feeds: true }),
  'the instruction set': withDevice({ isa: 'portable' }),
  'weaker instruction sets': withDevice({ isas: ['portable'] }),
  'the first cache': withDevice({ l1: host.l1 + 1 }),
  'the second cache': withDevice({ l2: host.l2 + 1 }),
  'rounding to integers': withDevice({ contractions: { ...host.contractions, rounds: true } }),
  'matrices in blocks': withDevice({ contractions: { stored: new Map([['a', 'q4_0']]), rounds: false } }),
  'the target': (planned) => ({ ...planned, target: { name: 'cuda' } }),
  'the type of a tensor': withTensor((tensor) => ({ ...tensor, format: 'f16' }) as TensorLocation),
  'the shape of a tensor': withTensor((tensor) => ({ ...tensor, shape: [...tensor.shape, 1] })),
  'the kind of a tensor': withTensor(({ name, format, shape }) => ({
    kind: 'constant',
    name,
    format,
    shape,
    value: 1,
  })),
  'groups of a tensor': withTensor(({ name, format, shape }) => ({
    ...{ kind: 'random', name, format, shape, seed: 1n, scale: 1 },
    group: 32,
  })),
};

describe('the key of a plan', () => {
  const planned: PlanInputs<CpuDevice> = { checkpoint: small, target: cpu, device: host, options: OPTIONS };
  const key = planKey(planned);

  it.each(Object.keys(CHANGES))('depends on %s', (name) => {
    expect(planKey(CHANGES[name]!(planned))).not.toBe(key);
  });

  it('depends on whether keys and values are kept, and not on how many', () => {
    const of = (options: PlanOptions): string => planKey({ ...planned, options });
    expect(of({ cacheTokens: 128 })).toBe(of({ cacheTokens: 1 << 20 }));
    expect(of({ cacheTokens: 128 })).not.toBe(of({}));
  });

  it.each(Object.keys(small.config))('depends on %s of the configuration', (field) => {
    const config = { ...small.config, [field]: 'another' };
    expect(planKey({ ...planned, checkpoint: { ...small, config } })).not.toBe(key);
  });

  it.each(Object.keys(TYPICAL_FACTS.sm_90a))('depends on %s of a GPU', (field) => {
    const device = cudaDevice(TYPICAL_FACTS.sm_90a, 'bf16');
    const of = (one: typeof device): string => planKey({ checkpoint: small, target: cuda, device: one, options: {} });
    expect(of({ ...device, [field]: 1 })).not.toBe(of(device));
  });

  it('depends on the groups that a configuration names for made-up weights', () => {
    const keyOf = (group: 32 | 64): string => {
      const tensors = new Map(small.tensors);
      const [name, { format, shape }] = [...tensors][3]!;
      tensors.set(name, { kind: 'random', name, format, shape, seed: 1n, scale: 1, group });
      return planKey({ ...planned, checkpoint: { ...small, tensors } });
    };
    expect(keyOf(32)).not.toBe(keyOf(64));
  });

  it('depends on the program', () => {
    expect(planKey(planned, 'another')).not.toBe(key);
    expect(planKey(planned, programId())).toBe(key);
  });

  it('does not depend on where values lie, nor on the seed of made-up ones', () => {
    const moved = withTensor((tensor) => (tensor.kind === 'file' ? { ...tensor, file: '/other', offset: 1 } : tensor));
    expect(planKey(moved(planned))).toBe(key);
  });
});

describe('the identity of the program', () => {
  function programAt(files: Readonly<Record<string, string>>): string {
    const program = mkdtempSync(join(root, 'program-'));
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(join(program, name, '..'), { recursive: true });
      writeFileSync(join(program, name), text);
    }
    return hashProgram(program);
  }
  const FILES = {
    'a.ts': 'a',
    'passes/fuse.ts': 'b',
    'codegen/cuda/unit.hbs': 'c',
    'codegen/cuda/lib/a.cuh': 'd',
    'runtime/native/abi.h': 'e',
  };
  const id = programAt(FILES);

  it.each(Object.keys(FILES))('changes with %s', (name) => {
    expect(programAt({ ...FILES, [name]: 'x' })).not.toBe(id);
    expect(programAt({ ...FILES, [`${name}.ts`]: 'x' })).not.toBe(id);
  });

  it('does not change with tests, data and packages', () => {
    const others = { 'test/a.ts': '', 'node_modules/a/b.ts': '', 'docs/a.md': '', 'passes/notes.md': '' };
    expect(programAt({ ...FILES, ...others })).toBe(id);
  });

  it.skipIf(!existsSync(join(REPOSITORY, 'dist', STAMP)))('is written by a build', () => {
    expect(readFileSync(join(REPOSITORY, 'dist', STAMP), 'utf8').trim()).toMatch(/^[0-9a-f]{64}$/);
  });
});

describe.skipIf(!existsSync(FAMILIES))('plans of families', () => {
  it.each(casesHere(FAMILY_CHECKPOINTS, ...TYPICAL_PLACES.filter((_, i) => i % 2 === 0)))(
    'are read as they were made: %s',
    (family) => {
      const { checkpoint, graphs } = counted(openModel(join(FAMILIES, family), { kind: 'checkpoint' }));
      const stored = storedFormats(checkpoint, 'auto');
      const expectSame = <S, D>(target: Target<S, D>, device: D): void => {
        const made = plannedModel(checkpoint, target, device, { batchTokens: 64 });
        const before = graphs();
        const read = plannedModel(checkpoint, target, device, { batchTokens: 64 });
        expect(graphs()).toBe(before);
        expect({ ...read }).toStrictEqual(made);
      };
      expectSame(cpu, cpuDevice(detectMachine(), 'auto', undefined, stored));
      expectSame(cuda, cudaDevice(TYPICAL_FACTS.sm_90a, 'auto', checkpoint.config.dtype, stored));
    },
  );
});
