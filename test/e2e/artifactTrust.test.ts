/** Self-contained artifacts: their own machine code and weights, checkpoints that move, and what is refused. */
import { createHash } from 'node:crypto';
import { cpSync, existsSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
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
  code?: { abi: number; machine: string; sources: string; files: Record<string, string> };
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

  test('lists only files of its own folder', async () => {
    for (const name of ['../../evil.so', '/etc/passwd.so', '.hidden.so', 'a/b.so']) {
      const dir = copy();
      edit(dir, ({ code }) => {
        code!.files = { [name]: '0'.repeat(64) };
      });
      expect(failure(await tilewright(['inspect', dir])).error).toMatch(/manifest\.json: code\.files/);
    }
  });

  thorough('runs after its checkpoint is gone, and wherever it is moved; tuning keeps its weights', async () => {
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

  thorough('is made of a config.json alone as well: made-up weights need no file', async () => {
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
    thorough('finds a byte that no sample covers, but only with --verify', async () => {
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

  thorough('is refused if its graph, plan and hashes agree but do not belong to its checkpoint', async () => {
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
    expect(error).toContain('made by artifact version 3; this tilewright reads 6');
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
