/** Self-contained artifacts: their own machine code and weights, checkpoints that move, and what is refused. */
import { createHash } from 'node:crypto';
import { cpSync, existsSync, readdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { questions, safetensorsFile, tensorsOf, writeCheckpoint, writeData } from './smallModel.js';
import { CAPACITY, failure, isBuilt, success, temporaryFolder, tilewright } from './support.js';
import { thorough } from '../support/thorough.js';

interface Manifest {
  version: number;
  model: {
    path: string;
    fingerprint: string;
    isPacked: boolean;
    tokenizer?: string;
    contents?: Record<string, string>;
  };
  program?: string;
  scoreGraph?: string;
  files: Record<string, string>;
  code?: { abi: number; machine: string; sources: string; files: Record<string, string> };
}

/** The parts of plan.json and kernels.json that tests change. */
interface Plan {
  weights: { k: number; sources: { tensor: string; rows: number }[] }[];
  functions: {
    launches: { kernel: string; signature: string }[];
    placements: { offset: number }[];
    schedules: Record<string, { kind: string; mr?: number }>[];
  }[];
}
interface Facts {
  kernels: { scratchBytes: number; digest?: string }[];
  places: Record<string, Record<string, number>[]>;
}

describe.skipIf(!isBuilt)('an artifact that is complete', () => {
  const folder = temporaryFolder();
  const model = writeCheckpoint();
  const sound = join(folder, 'sound.tw');
  const data = writeData(questions(4));
  /** A host without a compiler: nothing is on its PATH, nothing in its cache. */
  const bare = (): { env: Record<string, string> } => {
    const path = temporaryFolder();
    return { env: { PATH: path, TILEWRIGHT_CACHE: join(path, 'cache') } };
  };
  const questionsOf = (dir: string, ...flags: string[]): string[] => [
    'run',
    dir,
    ...['--task', 'multiple_choice', '--data', data, '--json'],
    ...flags,
  ];
  const accuracies = ({ stdout }: { stdout: string }): unknown => (JSON.parse(stdout) as { results: unknown }).results;
  let count = 0;
  const copy = (from = sound): string => {
    const dir = join(folder, `copy${count++}.tw`);
    cpSync(from, dir, { recursive: true });
    return dir;
  };
  const readManifest = (dir: string): Manifest =>
    JSON.parse(readFileSync(join(dir, 'manifest.json'), 'utf8')) as Manifest;
  const edit = (dir: string, change: (manifest: Manifest) => void): void => {
    const manifest = readManifest(dir);
    change(manifest);
    writeFileSync(join(dir, 'manifest.json'), JSON.stringify(manifest));
  };
  let answers: unknown;

  beforeAll(async () => {
    success(await tilewright(['compile', model, ...CAPACITY, '-o', sound, '--pack-weights']));
    answers = accuracies(success(await tilewright(questionsOf(sound))));
  });

  describe('runs without a compiler', () => {
    test('if the user trusts its machine code, with the same answers', async () => {
      expect(accuracies(success(await tilewright(questionsOf(sound, '--trust-code'), bare())))).toEqual(answers);
    });

    thorough('on several devices as well', async () => {
      const flags = ['--trust-code', '--devices', '2', '--threads', '2'];
      expect(accuracies(success(await tilewright(questionsOf(sound, ...flags), bare())))).toEqual(answers);
    });

    test('only when asked to: otherwise the error says what --trust-code means', async () => {
      const { error, hint } = failure(await tilewright(questionsOf(sound), bare()));
      expect(error).toContain('No working C compiler');
      expect(hint).toMatch(/--trust-code runs the artifact's own machine code, with your rights, unchecked/);
    });

    test('not without machine code: the error says that there is none, and what to type', async () => {
      const dir = copy();
      edit(dir, (manifest) => {
        delete manifest.code;
      });
      for (const flags of [[], ['--trust-code']]) {
        const { error, hint } = failure(await tilewright(questionsOf(dir, ...flags), bare()));
        expect(error).toContain('No working C compiler');
        expect(error).toContain(`${dir} holds no machine code for this machine either`);
        expect(hint).toContain('apt install gcc');
        expect(hint).toMatch(/has a compiler: tilewright compile .* -o /);
        expect(hint).not.toContain('--trust-code');
      }
    });

    test('and compiles if there is a compiler, whatever its machine code is', async () => {
      const dir = copy();
      writeFileSync(join(dir, 'kernels', 'kernels.so'), 'no code');
      expect(accuracies(success(await tilewright(questionsOf(dir, '--trust-code'))))).toEqual(answers);
    });

    test.each<[string, (dir: string) => void, RegExp]>([
      [
        'was damaged',
        (dir) => writeFileSync(join(dir, 'kernels', 'kernels.so'), 'no code'),
        /kernels\.so has hash [0-9a-f]{12}….*damaged/,
      ],
      ['is missing', (dir) => rmSync(join(dir, 'kernels', 'kernels.so')), /kernels\.so: no such file/],
      [
        'lies elsewhere',
        (dir) => {
          renameSync(join(dir, 'kernels', 'kernels.so'), join(folder, 'elsewhere.so'));
          symlinkSync(join(folder, 'elsewhere.so'), join(dir, 'kernels', 'kernels.so'));
        },
        /kernels\.so: a symbolic link leads out of the folder/,
      ],
      [
        'is for another machine',
        (dir) =>
          edit(dir, ({ code }) => {
            code!.machine = 'neon linux-arm64';
          }),
        /made for neon linux-arm64, this is \w+ linux-/,
      ],
      [
        'has another kernel ABI',
        (dir) =>
          edit(dir, ({ code }) => {
            code!.abi += 1;
          }),
        /it has kernel ABI \d+, this tilewright has \d+/,
      ],
      [
        'is of other kernels',
        (dir) =>
          edit(dir, ({ code }) => {
            code!.sources = '0'.repeat(64);
          }),
        /made of other kernels than this version/,
      ],
      [
        'was cut off before its hash was taken',
        (dir) => {
          const path = join(dir, 'kernels', 'kernels.so');
          const half = readFileSync(path).subarray(0, 20_000);
          writeFileSync(path, half);
          edit(dir, ({ code }) => {
            code!.files['kernels.so'] = createHash('sha256').update(half).digest('hex');
          });
        },
        /machine code: kernels\.so is damaged: .* not inside the file/,
      ],
    ])('but not if its code %s', async (_, change, expected) => {
      const dir = copy();
      change(dir);
      const { error, hint } = failure(await tilewright(questionsOf(dir, '--trust-code'), bare()));
      expect(error).toMatch(expected);
      expect(hint).toMatch(/^tilewright compile .* -o /);
    });
  });

  describe('is taken as it is, if the user trusts it and this program made it', () => {
    const NOTE = 'the plan and the machine code of the artifact are used as they are';
    const trusted = (dir: string, options = bare()): ReturnType<typeof tilewright> =>
      tilewright(questionsOf(dir, '--trust-code'), options);
    const shown = (dir: string, options = bare()): ReturnType<typeof tilewright> =>
      tilewright(
        questionsOf(dir, '--trust-code').filter((word) => word !== '--json'),
        options,
      );
    const hashed = (dir: string, name: 'plan.json' | 'kernels.json', text: string): void => {
      writeFileSync(join(dir, name), text);
      edit(dir, ({ files }) => {
        files[name] = createHash('sha256').update(text).digest('hex');
      });
    };
    const plan = (): Plan => JSON.parse(readFileSync(join(sound, 'plan.json'), 'utf8')) as Plan;

    test('first and from then on, compiler or not, and says so', async () => {
      const { env } = bare();
      for (const run of [env, env, { TILEWRIGHT_CACHE: env['TILEWRIGHT_CACHE']! }]) {
        const result = success(await trusted(sound, { env: run }));
        expect(accuracies(result)).toEqual(answers);
      }
      expect(success(await shown(sound, { env })).stderr).toContain(NOTE);
      // No kernel was compiled: the only library is the artifact's own.
      expect(readdirSync(join(env['TILEWRIGHT_CACHE']!, 'kernels'))).toHaveLength(1);
      expect(existsSync(join(env['TILEWRIGHT_CACHE']!, 'objects'))).toBe(false);
    });

    test('but is checked again without the flag, although its plan is in the cache', async () => {
      const { env } = bare();
      const cached = { env: { TILEWRIGHT_CACHE: env['TILEWRIGHT_CACHE']! } };
      const dir = copy();
      const crafted = plan();
      for (const schedules of crafted.functions[0]!.schedules)
        for (const schedule of Object.values(schedules)) if (schedule.kind === 'gemm') schedule.mr = 1000;
      hashed(dir, 'plan.json', JSON.stringify(crafted));
      success(await trusted(dir, cached));
      for (let i = 0; i < 2; i++)
        expect(failure(await tilewright(questionsOf(dir), cached)).error).toContain('the schedule is not legal');
    });

    test('else everything is checked and compiled as without the flag', async () => {
      const other = copy();
      edit(other, (manifest) => {
        manifest.program = '0'.repeat(64);
      });
      const older = copy();
      rmSync(join(older, 'kernels.json'));
      edit(older, (manifest) => {
        delete manifest.program;
        delete manifest.scoreGraph;
        delete manifest.files['kernels.json'];
      });
      for (const dir of [other, older]) {
        expect(accuracies(success(await trusted(dir)))).toEqual(answers);
        const { stderr } = success(await shown(dir));
        expect(stderr).toContain('no compiler is here');
        expect(stderr).not.toContain(NOTE);
      }
    });

    const facts = (): Facts => JSON.parse(readFileSync(join(sound, 'kernels.json'), 'utf8')) as Facts;
    test.each<[string, (dir: string) => void, RegExp]>([
      ['kernels are missing', (dir) => rmSync(join(dir, 'kernels.json')), /kernels\.json: no such file/],
      [
        'kernels were changed',
        (dir) => writeFileSync(join(dir, 'kernels.json'), '{}'),
        /kernels\.json has hash .*changed after it was compiled/,
      ],
      ['kernels are no JSON', (dir) => hashed(dir, 'kernels.json', '{'), /kernels\.json: /],
      ['kernels are nested', (dir) => hashed(dir, 'kernels.json', '['.repeat(1e6)), /nested more than/],
      [
        'kernels have a prototype',
        (dir) => hashed(dir, 'kernels.json', JSON.stringify(facts()).replace('"score"', '"__proto__"')),
        /kernels\.json: |plan\.json: 0 sets of kernels/,
      ],
      [
        'kernel has too much scratch memory',
        (dir) => {
          const crafted = facts();
          crafted.kernels[0]!.scratchBytes = 2 ** 40;
          hashed(dir, 'kernels.json', JSON.stringify(crafted));
        },
        /kernels\.json: kernels\.0\.scratchBytes/,
      ],
      [
        'kernel names the text of another',
        (dir) => {
          const crafted = facts();
          crafted.kernels[0]!.digest = '0'.repeat(64);
          hashed(dir, 'kernels.json', JSON.stringify(crafted));
        },
        /kernels\.json: kernels\.0: /,
      ],
      [
        'launch has no kernel',
        (dir) => {
          const crafted = facts();
          crafted.places['score'] = crafted.places['score']!.map(() => ({}));
          hashed(dir, 'kernels.json', JSON.stringify(crafted));
        },
        /plan\.json: bucket 0 of score has no kernel/,
      ],
      [
        'kernel does not exist',
        (dir) => {
          const crafted = facts();
          hashed(dir, 'kernels.json', JSON.stringify({ ...crafted, kernels: crafted.kernels.slice(1) }));
        },
        /names a kernel that it does not have/,
      ],
      [
        'plan reads a tensor that is not there',
        (dir) => {
          const crafted = plan();
          crafted.weights.at(-1)!.sources[0]!.tensor = 'no.such.weight';
          hashed(dir, 'plan.json', JSON.stringify(crafted));
        },
        /plan\.json: The checkpoint has no tensor no\.such\.weight/,
      ],
      [
        'plan reads a larger tensor',
        (dir) => {
          const crafted = plan();
          crafted.weights.at(-1)!.sources[0]!.rows *= 2;
          hashed(dir, 'plan.json', JSON.stringify(crafted));
        },
        /plan\.json: /,
      ],
      [
        'plan has a size out of bounds',
        (dir) => {
          const crafted = plan();
          crafted.weights.at(-1)!.k = 2 ** 40;
          hashed(dir, 'plan.json', JSON.stringify(crafted));
        },
        /plan\.json: weights\.\d+\.k/,
      ],
      [
        'plan places a buffer outside its memory',
        (dir) => {
          const crafted = plan();
          crafted.functions[0]!.placements[0]!.offset = 2 ** 44;
          hashed(dir, 'plan.json', JSON.stringify(crafted));
        },
        /plan\.json: the memory placements are not those of its kernels/,
      ],
      [
        'kernels are those of other launches',
        (dir) => {
          const crafted = facts();
          for (const bucket of crafted.places['score']!) {
            const [first, second] = Object.keys(bucket);
            [bucket[first!], bucket[second!]] = [bucket[second!]!, bucket[first!]!];
          }
          hashed(dir, 'kernels.json', JSON.stringify(crafted));
        },
        /plan\.json: bucket 0 of score has no kernel/,
      ],
      [
        'plan runs the kernel of another launch',
        (dir) => {
          const crafted = plan();
          crafted.functions[0]!.launches[1]!.signature = crafted.functions[0]!.launches[0]!.signature;
          hashed(dir, 'plan.json', JSON.stringify(crafted));
        },
        /plan\.json: the launches are not those of its kernels/,
      ],
      [
        'plan launches another kernel',
        (dir) => {
          const crafted = plan();
          crafted.functions[0]!.launches[0]!.kernel = crafted.functions[0]!.launches[1]!.kernel;
          hashed(dir, 'plan.json', JSON.stringify(crafted));
        },
        /plan\.json: the launches are not those of its kernels/,
      ],
    ])('is refused if its %s', async (_, change, expected) => {
      const dir = copy();
      change(dir);
      const { error, hint } = failure(await trusted(dir));
      expect(error).toMatch(expected);
      expect(hint).toMatch(/^tilewright compile .* -o /);
    });
  });

  test('lists only files of its own folder', async () => {
    for (const name of ['../../evil.so', '/etc/passwd.so', '.hidden.so', 'a/b.so']) {
      const dir = copy();
      edit(dir, ({ code }) => {
        code!.files = { [name]: '0'.repeat(64) };
      });
      expect(failure(await tilewright(['inspect', dir])).error).toMatch(/manifest\.json: code\.files/);
    }
  });

  test('runs after its checkpoint is gone, and wherever it is moved; tuning keeps its weights', async () => {
    const gone = writeCheckpoint();
    const first = join(folder, 'first.tw');
    success(await tilewright(['compile', gone, ...CAPACITY, '-o', first, '--pack-weights']));
    rmSync(gone, { recursive: true });
    const moved = join(temporaryFolder(), 'second.tw');
    renameSync(first, moved);
    expect(accuracies(success(await tilewright(questionsOf(moved))))).toEqual(answers);
    success(await tilewright(['tune', moved, '--budget', '2s']));
    expect(accuracies(success(await tilewright(questionsOf(moved, '--verify'))))).toEqual(answers);
  });

  test('is made of a config.json alone as well: made-up weights need no file', async () => {
    const made = join(folder, 'made-up.tw');
    success(await tilewright(['compile', model, ...CAPACITY, '--init', 'random:1', '--pack-weights', '-o', made]));
    const moved = join(temporaryFolder(), 'moved.tw');
    renameSync(made, moved);
    const first = accuracies(success(await tilewright(questionsOf(moved))));
    expect(first).toEqual(accuracies(success(await tilewright(questionsOf(moved, '--trust-code'), bare()))));
    expect(existsSync(join(moved, 'checkpoint', 'model.safetensors'))).toBe(false);
  });

  test('cannot be given weights from outside by a link', async () => {
    const dir = copy();
    const path = join(dir, 'checkpoint', 'model.safetensors');
    rmSync(path);
    symlinkSync(join(model, 'model.safetensors'), path);
    expect(failure(await tilewright(questionsOf(dir))).error).toContain('a symbolic link leads out of the folder');
  });

  test('shows what it holds and what must be trusted', async () => {
    const { stdout } = success(await tilewright(['inspect', sound]));
    expect(stdout).toMatch(/checkpoint +inside the artifact/);
    expect(stdout).toMatch(/machine code +.* for \w+ linux-\w+, kernel ABI \d+, by /);
    expect(stdout).toContain('hashes show damage, not who made it');
    expect(success(await tilewright(['inspect', sound, '--verify'])).stdout).toContain('all bytes compared now');
  });

  describe('whose weights stay outside', () => {
    const dir = join(folder, 'outside.tw');
    const away = writeCheckpoint();
    const moved = join(temporaryFolder(), 'moved');

    beforeAll(async () => {
      success(await tilewright(['compile', away, ...CAPACITY, '-o', dir]));
      renameSync(away, moved);
    });

    test('asks for --checkpoint if they were moved, and takes them from there', async () => {
      const { error, hint } = failure(await tilewright(questionsOf(dir)));
      expect(error).toContain(`its checkpoint ${away} is not there`);
      expect(hint).toContain('--checkpoint DIR');
      const flags = ['--checkpoint', moved];
      expect(accuracies(success(await tilewright(questionsOf(dir, ...flags))))).toEqual(answers);
      expect(
        accuracies(success(await tilewright(questionsOf(dir, ...flags, '--devices', '2', '--threads', '2')))),
      ).toEqual(answers);
      expect(success(await tilewright(['inspect', dir, ...flags])).stdout).not.toContain('note:');
    });

    test('refuses another checkpoint', async () => {
      const other = writeCheckpoint({ weights: safetensorsFile(tensorsOf(2)) });
      const { error, hint } = failure(await tilewright(questionsOf(dir, '--checkpoint', other)));
      expect(error).toContain(`${other} is not the one that was compiled`);
      expect(hint).toContain(`tilewright compile ${other}`);
    });

    thorough('is pointed to them permanently by tune', async () => {
      const tuned = copy(dir);
      success(await tilewright(['tune', tuned, '--budget', '2s', '--checkpoint', moved]));
      expect(readManifest(tuned).model.path).toBe(moved);
      expect(accuracies(success(await tilewright(questionsOf(tuned))))).toEqual(answers);
    });

    test('notices another tokenizer', async () => {
      const changed = join(temporaryFolder(), 'changed');
      cpSync(moved, changed, { recursive: true });
      const path = join(changed, 'tokenizer.json');
      writeFileSync(path, readFileSync(path, 'utf8').replace('"th"', '"ht"').replace('"t h"', '"h t"'));
      const { error, hint } = failure(await tilewright(questionsOf(dir, '--checkpoint', changed)));
      expect(error).toContain(`the tokenizer in ${changed} is not the one that was there when it was compiled`);
      expect(hint).toContain(`tilewright compile ${changed}`);
      expect(success(await tilewright(['inspect', dir, '--checkpoint', changed])).stdout).toContain('the tokenizer in');
    });
  });

  describe('with hashes of all bytes', () => {
    test('finds a byte that no sample covers, but only with --verify', async () => {
      const own = writeCheckpoint();
      const dir = join(folder, 'hashed.tw');
      success(await tilewright(['compile', own, ...CAPACITY, '-o', dir, '--hash-weights']));
      success(await tilewright(questionsOf(dir, '--verify')));
      const path = join(own, 'model.safetensors');
      const bytes = readFileSync(path);
      // A quarter into the embedding: samples are taken at its ends and in its middle.
      const at = 8 + Number(bytes.readBigUInt64LE()) + 320 * 64;
      bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at);
      writeFileSync(path, bytes);
      success(await tilewright(questionsOf(dir)));
      for (const command of [questionsOf(dir, '--verify'), ['inspect', dir, '--verify']]) {
        const { error } = failure(await tilewright(command));
        expect(error).toContain('model.safetensors: its bytes are not those that the artifact was compiled with');
      }
    });

    test('says how to make the hashes if there are none', async () => {
      const dir = join(folder, 'unhashed.tw');
      success(await tilewright(['compile', model, ...CAPACITY, '-o', dir]));
      const { error, hint } = failure(await tilewright(questionsOf(dir, '--verify')));
      expect(error).toContain('holds no hashes of all bytes');
      expect(hint).toMatch(/^tilewright compile .* --hash-weights$/);
    });
  });

  test('is refused if its graph, plan and hashes agree but do not belong to its checkpoint', async () => {
    const other = writeCheckpoint({ config: { rms_norm_eps: 1e-3 } });
    const dir = join(folder, 'crafted.tw');
    success(await tilewright(['compile', other, ...CAPACITY, '-o', dir]));
    const { path, fingerprint } = readManifest(sound).model;
    edit(dir, (manifest) => {
      Object.assign(manifest.model, { path, fingerprint });
    });
    const { error, hint } = failure(await tilewright(questionsOf(dir)));
    expect(error).toContain('graph.tw: this is not the graph that the config.json of the checkpoint compiles to');
    expect(hint).toContain(`tilewright compile ${path}`);
  });

  test('is refused if it is of an earlier version, with the command that makes it again', async () => {
    const dir = copy();
    edit(dir, (manifest) => {
      manifest.version = 3;
    });
    const { error, hint } = failure(await tilewright(questionsOf(dir)));
    expect(error).toContain('made by artifact version 3; this tilewright reads 4');
    expect(hint).toBe(`tilewright compile ${model} --target cpu -o ${dir}`);
  });

  test('does not replace the folder that holds the checkpoint it refers to', async () => {
    const dir = copy();
    const { status, stderr } = await tilewright(['compile', join(dir, 'checkpoint'), '-o', dir]);
    expect(status).toBe(2);
    expect(stderr).toContain('holds the checkpoint that is to be compiled');
    expect(existsSync(join(dir, 'checkpoint', 'config.json'))).toBe(true);
  });

  test('has flags that mean nothing for a checkpoint', async () => {
    for (const flags of [['--trust-code'], ['--verify'], ['--checkpoint', folder]]) {
      const { status, stderr } = await tilewright(questionsOf(model, ...flags));
      expect(status).toBe(2);
      expect(stderr).toContain('only for artifacts');
    }
  });
});
