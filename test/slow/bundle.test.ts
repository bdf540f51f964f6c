/** The bundle: made, unpacked elsewhere and used on a host whose PATH has no Node. */
import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readSettings } from '../../settings.js';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const needed = ['dist/cli/main.js', 'dist/test/gpu', 'build/Release/tilewright.node'].filter(
  (path) => !existsSync(join(ROOT, path)),
);
const absent = ['tar', 'gzip', 'xz', 'cc'].filter(
  (program) => spawnSync(program, ['--version'], { stdio: 'ignore' }).status !== 0,
);
const reason =
  process.platform !== 'linux' || process.arch !== 'x64'
    ? 'bundles are for Linux x64'
    : needed.length > 0
      ? `${needed.join(', ')}: not built; run npm run build`
      : absent.length > 0
        ? `${absent.join(', ')}: not installed`
        : undefined;
if (reason !== undefined) console.warn(`SKIPPED test/slow/bundle.test.ts: ${reason}`);

let folder = '';
const place = (...parts: string[]): string => join(folder, ...parts);
const bundle = (...parts: string[]): string => place('elsewhere', 'tilewright-linux-x64', ...parts);

/** Programs of this machine except Node: a C compiler with what it calls, and what the launcher may call. */
function makeBin(): void {
  mkdirSync(place('bin'));
  for (const name of ['cc', 'as', 'ld', 'readlink']) {
    const path = readSettings()
      .path.split(delimiter)
      .map((each) => join(each, name))
      .find((each) => existsSync(each));
    if (path !== undefined) symlinkSync(path, place('bin', name));
  }
}

const start = (
  program: string,
  args: readonly string[],
  cwd = folder,
): { status: number | null; stdout: string; stderr: string } =>
  spawnSync(program, args, {
    cwd,
    encoding: 'utf8',
    env: { PATH: place('bin'), HOME: place('home'), TILEWRIGHT_CACHE: place('home', 'cache') },
    maxBuffer: 2 ** 26,
  });

const make = (...args: string[]): { status: number | null; stdout: string; stderr: string } =>
  spawnSync(process.execPath, [join(ROOT, 'scripts', 'bundle.mjs'), '--out', place('bundle.tar.gz'), ...args], {
    cwd: ROOT,
    encoding: 'utf8',
  });

describe.skipIf(reason !== undefined)('the bundle', () => {
  beforeAll(() => {
    folder = realpathSync(mkdtempSync(join(tmpdir(), 'tilewright-bundled-')));
    makeBin();
    mkdirSync(place('home'));
    mkdirSync(place('elsewhere'));
    const made = make();
    expect(made.stderr).toBe('');
    expect(made.stdout).toMatch(
      new RegExp(
        'bundle\\.tar\\.gz: \\d+\\.\\d MB with Node v\\d\\S+; ' +
          'for hosts with glibc 2\\.\\d+ and libstdc\\+\\+ 3\\.4\\S* symbols or later\n',
      ),
    );
    expect(spawnSync('tar', ['-xzf', place('bundle.tar.gz')], { cwd: place('elsewhere') }).status).toBe(0);
  }, 300_000);
  afterAll(() => {
    rmSync(folder, { recursive: true, force: true });
  });

  it('is small, and contains nothing of other platforms and nothing that is never loaded', () => {
    expect(statSync(place('bundle.tar.gz')).size).toBeLessThan(48e6);
    const files = readdirSync(bundle(), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => relative(bundle(), join(entry.parentPath, entry.name)));
    expect(
      files
        .filter((path) => path.endsWith('.node'))
        .map((path) => path.split('/').at(-1))
        .sort(),
    ).toEqual(['koffi.node', 'tilewright.node', 'tokenizers.linux-x64-gnu.node']);
    expect(
      files.filter((path) => /\.(ts|map|cc)$/.test(path) || /^node_modules\/(cmake-js|vitest|typescript)\//.test(path)),
    ).toEqual([]);
    for (const path of [
      'LICENSE',
      'README.md',
      'examples/everyday.jsonl',
      'models/demo/model.safetensors',
      'dist/test/gpu/compiler.gpu.js',
      'node_modules/zod/LICENSE',
    ])
      expect(files).toContain(path);
  });

  it('says what a host must have', () => {
    expect(readFileSync(bundle('REQUIREMENTS.txt'), 'utf8')).toMatch(
      /^This bundle needs Linux x64 with glibc 2\.\d+ and libstdc\+\+ 3\.4\S* symbols or later/,
    );
    // A Node that does not start, as the loader of an older system would refuse it.
    const node = bundle('node', 'node');
    writeFileSync(bundle('node', 'unpack.intact'), readFileSync(bundle('node', 'unpack')), { mode: 0o755 });
    writeFileSync(
      bundle('node', 'unpack'),
      '#!/bin/sh\nprintf \'#!/bin/sh\\nexit 1\\n\' > "$2"; /bin/chmod +x "$2"\n',
      { mode: 0o755 },
    );
    const { status, stderr } = start(bundle('tilewright'), ['doctor']);
    expect(status).toBe(1);
    expect(stderr).toMatch(/^hint: this system is too old for the bundle: see .*REQUIREMENTS\.txt\n$/);
    renameSync(bundle('node', 'unpack.intact'), bundle('node', 'unpack'));
    rmSync(node);
  });

  it('says what is wrong with a damaged Node, and leaves nothing behind', () => {
    const packed = bundle('node', 'node.lzma');
    const whole = readFileSync(packed);
    for (const spoil of [
      () => truncateSync(packed, 1_000_000),
      () => truncateSync(packed, 10),
      () => writeFileSync(packed, Buffer.from(whole).fill(0x5a, 500_000, 600_000)),
    ]) {
      spoil();
      const { status, stdout, stderr } = start(bundle('tilewright'), ['--version']);
      expect([status, stdout]).toEqual([1, '']);
      expect(stderr).toMatch(/^unpack: the file is /);
      expect(readdirSync(bundle('node')).filter((name) => name.startsWith('node'))).toEqual(['node.lzma']);
    }
    writeFileSync(packed, whole);
  });

  it('starts from anywhere, through links, and names itself in its suggestions', () => {
    symlinkSync(bundle('tilewright'), place('bin', 'tw'));
    symlinkSync(join('bin', 'tw'), place('link'));
    const version = start('./link', ['--version']);
    expect([version.status, version.stderr]).toEqual([0, '']);
    expect(version.stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
    expect(start(process.execPath, ['--version']).stdout).toBe(start(bundle('node', 'node'), ['--version']).stdout);
    expect(start('./tilewright', ['inspect', 'models/demo'], bundle()).stdout).toContain(
      '\n  ./tilewright inspect models/demo',
    );
    expect(start('tw', ['inspect', join(bundle(), 'models/demo')]).stdout).toContain(
      '\n  ./elsewhere/tilewright-linux-x64/tilewright inspect ',
    );
  });

  it('scores questions on the CPU', () => {
    const { status, stdout, stderr } = start(
      './tilewright',
      [
        'run',
        'models/demo',
        '--task',
        'hellaswag',
        '--data',
        'examples/everyday.jsonl',
        '--limit',
        '5',
        '--batch-tokens',
        '96',
        '--json',
      ],
      bundle(),
    );
    expect([status, stderr]).toEqual([0, '']);
    const results = JSON.parse(stdout) as {
      results: { hellaswag: Record<string, unknown> };
      throughput: { questions: number };
    };
    expect(results.throughput.questions).toBe(5);
    expect(results.results.hellaswag).toHaveProperty('acc,none');
  });

  it('scores tasks of the harness, whose files it reads with packages of its own', () => {
    const folder = place('trivia');
    mkdirSync(folder);
    writeFileSync(join(folder, 'data.jsonl'), '{"q": "Is snow white?", "a": 0}\n{"q": "Is coal white?", "a": 1}\n');
    const task = {
      task: 'trivia',
      dataset_path: 'json',
      dataset_kwargs: { data_files: { test: join(folder, 'data.jsonl') } },
      output_type: 'multiple_choice',
      test_split: 'test',
      doc_to_text: '{{q}}',
      doc_to_choice: ['yes', 'no'],
      doc_to_target: 'a',
    };
    writeFileSync(join(folder, 'trivia.yaml'), JSON.stringify(task));
    const { status, stdout } = start(
      './tilewright',
      ['run', 'models/demo', '--tasks', 'trivia', '--include_path', folder, '--batch-tokens', '96', '--json'],
      bundle(),
    );
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toHaveProperty(['results', 'trivia', 'acc,none']);
  });

  it('opens the artifact that it has compiled', () => {
    const compiled = start(
      './tilewright',
      ['compile', 'models/demo', '-o', place('demo.tw'), '--batch-tokens', '96'],
      bundle(),
    );
    expect([compiled.status, compiled.stdout + compiled.stderr]).toEqual([0, expect.stringContaining('demo.tw')]);
    const opened = start('./tilewright', ['inspect', place('demo.tw'), '--plan'], bundle());
    expect([opened.status, opened.stderr]).toEqual([0, '']);
  });

  it('runs the GPU tests, or says that nothing was tested', () => {
    const { status, stdout } = start('./test-gpu.sh', [], bundle());
    const counts = /^(\d+) passed, (\d+) failed, (\d+) skipped$/m.exec(stdout)?.slice(1).map(Number);
    expect(counts, stdout).toHaveLength(3);
    const [passed = 0, failed = 0, skipped = 0] = counts ?? [];
    expect(failed, stdout).toBe(0);
    expect(passed + skipped).toBeGreaterThan(0);
    expect(status).toBe(passed > 0 ? 0 : 77);
    if (skipped > 0) expect(stdout).toMatch(/!! SKIPPED: .*\n!!   \w+: /);
  });

  it('is not made if the given file is not Node', () => {
    writeFileSync(place('script'), `#!/bin/sh\n${'#'.repeat(100)}\necho v20.0.0\n`, { mode: 0o755 });
    const { status, stderr } = make('--node', place('script'));
    expect([status, stderr]).toEqual([
      1,
      `error: ${place('script')} is no program for Linux x64\nhint: name one: npm run bundle -- --node /path/to/node\n`,
    ]);
  });
});
