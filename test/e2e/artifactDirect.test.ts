/** Artifacts whose plan and machine code are taken as they are: what that needs, and what is refused all the same. */
import { createHash } from 'node:crypto';
import { cpSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { questions, writeCheckpoint, writeData } from './smallModel.js';
import { CAPACITY, failure, isBuilt, success, temporaryFolder, tilewright } from './support.js';

interface Manifest {
  program?: string;
  scoreGraph?: string;
  files: Record<string, string>;
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

describe.skipIf(!isBuilt)('an artifact is taken as it is, if the user trusts it and this program made it', () => {
  const folder = temporaryFolder();
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
  const copy = (): string => {
    const dir = join(folder, `copy${count++}.tw`);
    cpSync(sound, dir, { recursive: true });
    return dir;
  };
  const edit = (dir: string, change: (manifest: Manifest) => void): void => {
    const manifest = JSON.parse(readFileSync(join(dir, 'manifest.json'), 'utf8')) as Manifest;
    change(manifest);
    writeFileSync(join(dir, 'manifest.json'), JSON.stringify(manifest));
  };
  let answers: unknown;

  beforeAll(async () => {
    success(await tilewright(['compile', writeCheckpoint(), ...CAPACITY, '-o', sound, '--pack-weights']));
    answers = accuracies(success(await tilewright(questionsOf(sound))));
  });

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
