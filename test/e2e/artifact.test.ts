/** Artifacts that were made elsewhere or changed afterwards are refused, with the command that makes them again. */
import { createHash } from 'node:crypto';
import { cpSync, readFileSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { loadArtifact } from '../../driver/artifact/load.js';
import { detectMachine } from '../../driver/targets/cpuDevice.js';
import { UserError } from '../../errors.js';
import type { CpuGemmSchedule, LinkedFunction, Plan } from '../../ir/plan.js';
import { questions, writeCheckpoint, writeData } from './smallModel.js';
import { CAPACITY, failure, isBuilt, success, temporaryFolder, tilewright } from './support.js';

type Json = Record<string, unknown>;
type Writable<T> = T extends readonly (infer E)[]
  ? Writable<E>[]
  : T extends object
    ? { -readonly [K in keyof T]: Writable<T[K]> }
    : T;

describe.skipIf(!isBuilt)('an artifact', () => {
  const folder = temporaryFolder();
  const sound = join(folder, 'sound.tw');
  const model = writeCheckpoint();
  const data = writeData(questions(4));
  let count = 0;

  beforeAll(async () => {
    success(await tilewright(['compile', model, ...CAPACITY, '-o', sound]));
  });

  const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
  const copy = (): string => {
    const dir = join(folder, `copy${count++}.tw`);
    cpSync(sound, dir, { recursive: true });
    return dir;
  };
  const editText = (dir: string, name: string, edit: (text: string) => string): string => {
    const before = readFileSync(join(dir, name), 'utf8');
    const after = edit(before);
    expect(after).not.toBe(before);
    writeFileSync(join(dir, name), after);
    return after;
  };
  const editManifest = (
    dir: string,
    edit: (manifest: Json & { target: Json; files: Json; model: Json }) => void,
  ): void => {
    editText(dir, 'manifest.json', (text) => {
      const manifest = JSON.parse(text) as Json & { target: Json; files: Json; model: Json };
      edit(manifest);
      return JSON.stringify(manifest);
    });
  };
  /** Changes a file and updates its hash in the manifest. */
  const forge = (name: 'plan.json' | 'graph.tw', edit: (text: string) => string): string => {
    const dir = copy();
    const text = editText(dir, name, edit);
    editManifest(dir, (manifest) => {
      manifest.files[name] = sha256(text);
    });
    return dir;
  };
  const forgePlan = (edit: (plan: Writable<LinkedFunction>) => void): string =>
    forge('plan.json', (text) => {
      const plan = JSON.parse(text) as Writable<Plan>;
      const [only] = plan.functions;
      const linked: Writable<LinkedFunction> = { ...plan, ...only! };
      edit(linked);
      const { weights, constants, states, ...changed } = linked;
      delete (changed as Partial<typeof plan>).functions;
      return `${JSON.stringify({ weights, constants, states, functions: [changed] })}\n`;
    });
  const machine = detectMachine();
  const refusal = async (dir: string, here = machine): Promise<UserError> => {
    try {
      await loadArtifact(dir, here);
    } catch (error) {
      if (error instanceof UserError) return error;
      throw error;
    }
    throw new Error('the artifact was loaded');
  };
  const rebuilds = (hint: string | undefined, dir: string): void => {
    expect(hint).toMatch(/^tilewright compile /);
    expect(hint).toContain(model);
    expect(hint).toContain(`-o ${dir}`);
  };
  const gemms = (plan: Writable<LinkedFunction>): Writable<CpuGemmSchedule>[] =>
    plan.schedules.flatMap((each) => Object.values(each)).filter((schedule) => schedule.kind === 'gemm');

  test('runs if it is sound', async () => {
    const { stdout } = success(
      await tilewright(['run', copy(), '--task', 'multiple_choice', '--data', data, '--json']),
    );
    expect(JSON.parse(stdout)).toMatchObject({ 'n-samples': { multiple_choice: { effective: 4 } } });
  });

  test('is refused by the command in two lines if its plan was changed', async () => {
    const dir = copy();
    editText(dir, 'plan.json', (text) => text.replace('"offset":0', '"offset":64'));
    for (const command of [
      ['run', dir, '--task', 'multiple_choice', '--data', data],
      ['tune', dir, '--budget', '1s'],
      ['inspect', dir],
    ]) {
      const { error, hint } = failure(await tilewright(command));
      expect(error).toMatch(/plan\.json has hash [0-9a-f]{12}…, the manifest says [0-9a-f]{12}…/);
      rebuilds(hint, dir);
    }
  });

  test('is refused if its graph was changed', async () => {
    const dir = copy();
    editText(dir, 'graph.tw', (text) => text.replace('rsqrt', 'exp'));
    const { message, hint } = await refusal(dir);
    expect(message).toContain('graph.tw has hash');
    rebuilds(hint, dir);
  });

  test.each([
    ['manifest.json', 2 ** 20],
    ['graph.tw', 2 ** 23],
    ['plan.json', 2 ** 25],
  ])('is refused unread if it has a %s of more than %d bytes, or one that has no end', async (name, most) => {
    const dir = copy();
    truncateSync(join(dir, name), most + 1);
    const large = await refusal(dir);
    expect(large.message).toContain(`${name}: ${most + 1} bytes, more than the limit of ${most}`);
    expect(large.hint).toMatch(/^tilewright compile /);
    rmSync(join(dir, name));
    symlinkSync('/dev/zero', join(dir, name));
    const endless = await refusal(dir);
    expect(endless.message).toMatch(/not a regular file|a symbolic link leads out of the folder/);
    expect(endless.hint).toMatch(/^tilewright compile /);
    rmSync(join(dir, name));
    expect((await refusal(dir)).message).toContain(`${name}: no such file`);
  });

  test.each([0, 1, 4, 999])('is refused if its version is %d, whatever else its manifest holds', async (version) => {
    const dir = copy();
    editManifest(dir, (manifest) => {
      manifest['version'] = version;
      manifest['somethingNew'] = { kind: 'unheard of' };
    });
    const { message, hint } = await refusal(dir);
    expect(message).toContain(`made by artifact version ${version}; this tilewright reads 6`);
    rebuilds(hint, dir);
  });

  test('is refused if it is for another CPU; the error names both', async () => {
    const { message, hint } = await refusal(sound, {
      ...machine,
      isas: ['portable'],
      cpu: { ...machine.cpu, model: 'An Old CPU' },
    });
    expect(message).toMatch(/compiled for \w+ on .*; this CPU \(An Old CPU\) has portable$/);
    rebuilds(hint, sound);
  });

  test.skipIf(machine.isas.includes('amx'))(
    'is refused by the command if it is for an instruction set that this machine lacks',
    async () => {
      const dir = copy();
      editManifest(dir, (manifest) => {
        Object.assign(manifest.target, { isa: 'amx', arithmetic: 'bf16' });
      });
      const { error, hint } = failure(await tilewright(['run', dir, '--task', 'multiple_choice', '--data', data]));
      expect(error).toContain('compiled for amx');
      rebuilds(hint, dir);
    },
  );

  test.each<[string, (manifest: Json & { target: Json; files: Json; model: Json }) => void, RegExp]>([
    [
      'of an unheard-of instruction set',
      (manifest) => {
        manifest.target['isa'] = '../../evil';
      },
      /manifest\.json: target\.isa/,
    ],
    [
      'with another arithmetic than its instruction set has',
      (manifest) => {
        manifest.target['arithmetic'] = manifest.target['arithmetic'] === 'f32' ? 'bf16' : 'f32';
      },
      /does not compute in/,
    ],
    [
      'with files that no artifact has',
      (manifest) => {
        manifest.files['../../etc/passwd'] = '0'.repeat(64);
      },
      /manifest\.json: files/,
    ],
    [
      'without hashes',
      (manifest) => {
        manifest.files = {};
      },
      /manifest\.json: files/,
    ],
  ])('%s is refused', async (_, edit, expected) => {
    const dir = copy();
    editManifest(dir, edit);
    const { message, hint } = await refusal(dir);
    expect(message).toMatch(expected);
    rebuilds(hint, dir);
  });

  test.each<[string, (plan: Writable<LinkedFunction>) => void, RegExp]>([
    [
      'placements moved',
      (plan) => {
        plan.placements[3]!.offset += 64;
      },
      /memory placements/,
    ],
    [
      'two placements swapped',
      (plan) => {
        const [a, b] = [plan.placements[1]!, plan.placements[2]!];
        [a.buffer, b.buffer] = [b.buffer, a.buffer];
      },
      /memory placements/,
    ],
    [
      'a smaller arena',
      (plan) => {
        plan.arenaBytes -= 64;
      },
      /memory placements/,
    ],
    [
      'token ids as the row numbers of its last attention',
      (plan) => {
        for (const kernel of plan.kernels)
          if (kernel.anchor === 'attention' && kernel.queryRow !== undefined) kernel.queryRow = 'target';
      },
      /'target' is token\(\d+\); it may not choose among T rows/,
    ],
    [
      'row numbers as its targets',
      (plan) => {
        for (const kernel of plan.kernels) if ('target' in kernel && kernel.target === 'target') kernel.target = 'row';
      },
      /'row' is row\(T\); it may not choose among \d+ rows of the vocabulary/,
    ],
    [
      'launch parameters swapped',
      (plan) => {
        plan.launches.find((launch) => launch.parameters.length > 2)!.parameters.reverse();
      },
      /launches/,
    ],
    [
      'a launch left out',
      (plan) => {
        plan.launches.pop();
      },
      /launches/,
    ],
    [
      'two launches swapped',
      (plan) => {
        plan.launches.reverse();
      },
      /launches/,
    ],
    [
      'a thousand rows in registers',
      (plan) => {
        for (const schedule of gemms(plan)) Object.assign(schedule, { mr: 1000, mb: 1000 });
      },
      /schedule is not legal: (mr|amx tiles)/,
    ],
    [
      'passes of no depth',
      (plan) => {
        for (const schedule of gemms(plan)) schedule.kc = 0;
      },
      /kc/,
    ],
    [
      'passes of an odd depth',
      (plan) => {
        for (const schedule of gemms(plan)) schedule.kc = 33;
      },
      /schedule is not legal: .*kc/,
    ],
    [
      'work items of half a head',
      (plan) => {
        for (const schedule of gemms(plan)) schedule.nb = 16;
      },
      /schedule is not legal: nb/,
    ],
    [
      'work items as large as memory',
      (plan) => {
        for (const schedule of gemms(plan)) Object.assign(schedule, { mb: schedule.mr * 1_000_000 });
      },
      /schedule is not legal: mb/,
    ],
    [
      'a schedule of another kind',
      (plan) => {
        for (const [key] of Object.entries(plan.schedules[0]!))
          plan.schedules[0]![key] = { kind: 'loop', isa: 'portable', rows: 1 };
      },
      /schedule is not legal/,
    ],
    [
      'a schedule left out',
      (plan) => {
        delete plan.schedules[0]![plan.launches[0]!.signature];
      },
      /no schedule for kernel/,
    ],
    [
      'a bucket larger than the arena is for',
      (plan) => {
        Object.assign(plan.buckets.at(-1)!, { extents: { T: 1 << 16, R: 1 << 16 } });
      },
      /largest bucket/,
    ],
    [
      'buckets that have the capacity only together',
      (plan) => {
        const [T, R] = [plan.buckets.at(-1)!.extents['T']!, plan.buckets.at(-1)!.extents['R']!];
        Object.assign(plan.buckets.at(-1)!, { extents: { T, R: 1 } });
        Object.assign(plan.buckets.at(-2)!, { extents: { T: 1, R } });
      },
      /none of its buckets has its capacity/,
    ],
    [
      'times of a bucket of other extents',
      (plan) => {
        Object.assign(plan, { bucketSeconds: [{ extents: { Z: 1 }, longest: 1, run: 1, seconds: 1 }] });
      },
      /a bucket of 1 Z, but the extents are T, R/,
    ],
    [
      'an expression a thousand deep',
      (plan) => {
        let deep: unknown = { op: 'const', value: 1 };
        for (let i = 0; i < 1500; i++) deep = { op: 'neg', a: deep };
        Object.assign(plan.kernels[0]!, { deep });
      },
      /nested more than 200 deep/,
    ],
    [
      'weights of two layers swapped',
      (plan) => {
        const [a, b] = plan.weights.filter((weight) => weight.sources[0]?.tensor.endsWith('down_proj.weight'));
        [a!.sources, b!.sources] = [b!.sources, a!.sources];
      },
      /weights are not those of graph\.tw/,
    ],
    [
      'another norm folded in',
      (plan) => {
        plan.weights.find(({ layout }) => layout !== 'rows')!.columnScale = 'model.norm.weight';
      },
      /weights are not those of graph\.tw/,
    ],
    [
      'another scale of attention',
      (plan) => {
        for (const kernel of plan.kernels) if (kernel.anchor === 'attention') kernel.scale *= 2;
      },
      /kernels are not those of graph\.tw|launches/,
    ],
    [
      'other rotary frequencies',
      (plan) => {
        plan.constants[0]!.values[0] = 0.5;
      },
      /constants are not those of graph\.tw/,
    ],
    [
      'a kernel name that leads out of the folder',
      (plan) => {
        plan.kernels[0]!.name = '../../evil';
      },
      /plan\.json: functions\.0\.kernels\.0/,
    ],
    [
      'a kernel name that is C',
      (plan) => {
        plan.kernels[0]!.name = 'a;system("true")';
      },
      /plan\.json: functions\.0\.kernels\.0/,
    ],
    [
      'a kernel path that ends a comment',
      (plan) => {
        plan.kernels[0]!.path = '*/ int x; /*';
      },
      /may not stand in a comment/,
    ],
    [
      'a tensor name that leads out of the folder',
      (plan) => {
        plan.weights[0]!.sources[0]!.tensor = '../../etc/passwd';
      },
      /plan\.json: weights\.0/,
    ],
    [
      'a signature that leads out of the folder',
      (plan) => {
        plan.launches[0]!.signature = '../x';
      },
      /plan\.json: functions\.0\.launches\.0/,
    ],
  ])('is refused with %s, although its hash fits', async (_, edit, expected) => {
    const dir = forgePlan(edit);
    const { message, hint } = await refusal(dir);
    expect(message).toMatch(expected);
    rebuilds(hint, dir);
  });

  test.each<[string, (text: string) => string, RegExp]>([
    ['that is no graph', (text) => text.slice(0, text.length / 2), /graph\.tw/],
    ['of another computation', (text) => text.replace('rsqrt', 'exp'), /not those of graph\.tw/],
    [
      'of another tensor',
      (text) => text.replaceAll('layers.1.mlp.down_proj', 'layers.1.mlp.other_proj'),
      /not those of graph\.tw/,
    ],
  ])('is refused with a graph %s, although its hash fits', async (_, edit, expected) => {
    const dir = forge('graph.tw', edit);
    const { message, hint } = await refusal(dir);
    expect(message).toMatch(expected);
    rebuilds(hint, dir);
  });

  test('is refused if its only function has another name', async () => {
    const dir = forgePlan((plan) => {
      plan.interface = { ...plan.interface, name: 'other' };
    });
    const graph = editText(dir, 'graph.tw', (text) => text.replace('@score', '@other'));
    editManifest(dir, (manifest) => {
      manifest.files['graph.tw'] = sha256(graph);
    });
    const { error, hint } = failure(await tilewright(['inspect', dir]));
    expect(error).toContain('graph.tw: it has no function score');
    rebuilds(hint, dir);
  });

  test('is refused if its checkpoint has changed', async () => {
    const moved = writeCheckpoint();
    const dir = join(folder, 'moved.tw');
    success(await tilewright(['compile', moved, ...CAPACITY, '-o', dir]));
    const path = join(moved, 'model.safetensors');
    const bytes = readFileSync(path);
    bytes.writeFloatLE(0.25, bytes.length - 4);
    writeFileSync(path, bytes);
    const { error, hint } = failure(await tilewright(['run', dir, '--task', 'multiple_choice', '--data', data]));
    expect(error).toContain('is not the one that was compiled');
    expect(hint).toContain(`-o ${dir}`);
  });
});
