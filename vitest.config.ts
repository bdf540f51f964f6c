import { existsSync, mkdirSync, readdirSync, readFileSync, statfsSync } from 'node:fs';
import { availableParallelism, freemem, tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { MEMORY, memoryFolder } from './test/support/runFolder.js';

/** Files that take longest, the longest first: one that came last would leave the other processors idle. */
const LONG = [
  'e2e/golden',
  'e2e/devices',
  'e2e/generate',
  'library/engine',
  'e2e/interrupted',
  'codegen/gemm',
  'e2e/drafts',
  'codegen/cuda/attention',
  'codegen/attention',
  'driver/int8',
  'cli/built',
  'runtime/kernelsAtNeed',
  'e2e/badDevice',
  'e2e/artifactTrust',
  'e2e/badData',
  'codegen/cuda/skinny',
  'codegen/cuda/grouped',
  'codegen/cuda/hopper',
  'codegen/cuda/wgmma',
];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    // After those named, what compiles or starts processes; then files that share a worker, which should lie together.
    const place = ({ moduleId, project }: TestSpecification): number => {
      const at = LONG.findIndex((name) => moduleId.endsWith(`/test/${name}.test.ts`));
      return at >= 0
        ? at
        : LONG.length +
            (project.name !== 'separate' ? 2 : /^test\/(codegen|e2e)\//.test(relative(ROOT, moduleId)) ? 0 : 1);
    };
    return (await super.sort(files)).sort((a, b) => place(a) - place(b));
  }
}

const ROOT = import.meta.dirname;

const ENOUGH = 8 * 2 ** 30;
/**
 * Whether temporary files can lie in memory: what tests flush to disk, as the product does for what it must not lose,
 * would wait for the disk, with one of two processors idle. Shared objects are loaded from there.
 */
const isMemoryLarge = (): boolean => {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    const options =
      readFileSync('/proc/mounts', 'utf8')
        .match(/^\S+ \/dev\/shm tmpfs (\S+)/m)?.[1]
        ?.split(',') ?? [];
    return bavail * bsize >= ENOUGH && freemem() >= ENOUGH && options.includes('rw') && !options.includes('noexec');
  } catch {
    return false;
  }
};
// Test files run in children of this process. globalSetup.ts removes the folder.
const inMemory = memoryFolder(process.pid);
const isInMemory = tmpdir() === '/tmp' && isMemoryLarge();
if (isInMemory) mkdirSync(inMemory, { recursive: true, mode: 0o755 });

/**
 * With `--mode built`, tests get the product's modules as they are built in dist, which Node loads as it does for
 * users: nothing is transformed, and files that share a process share them. dist must be current.
 */
const builtModules = {
  name: 'built-modules',
  enforce: 'pre' as const,
  resolveId(source: string, importer: string | undefined) {
    if (importer === undefined || !source.startsWith('.') || !source.endsWith('.js')) return undefined;
    const path = relative(ROOT, resolve(dirname(importer.split('?')[0]!), source));
    if (/^(\.\.|test)\//.test(path)) return undefined;
    const built = join(ROOT, 'dist', path);
    return existsSync(built) ? built : undefined;
  },
};

/** Of all projects below. */
const common = {
  environment: 'node' as const,
  // Ends what hangs. What compiles a whole small model takes half a minute on two cores, and a multiple of it beside
  // others.
  testTimeout: 300_000,
  hookTimeout: 300_000,
  // A condition that is waited for may come late on a busy machine. What never comes fails with its last value, just
  // before the test would end.
  expect: { poll: { timeout: 240_000 } },
  // Processes, not threads: a crash in native code then names the test file that caused it.
  pool: 'forks' as const,
  // A test must not see what another one mocked.
  restoreMocks: true,
  // What every pass leaves is verified, not only what the last one does.
  env: { TILEWRIGHT_VERIFY: '1', ...(isInMemory ? { TMPDIR: inMemory } : {}) },
  // What is built is tested as it is.
  server: { deps: { external: [/\/dist\//] } },
};

const SLOW = 'test/slow/**/*.test.ts';

/** Test files of a folder, by their paths from the root. */
const testsIn = (folder: string): string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.test.ts'))
    .map((name) => `${folder}/${name}`);
const CHANGES_ITS_PROCESS = /\bvi\.mock\(|\bprocess\.(env\b.*[^=!]=[^=>]|chdir\()/;
/**
 * Files that compute, or start processes, and change nothing of their own process for good: loading the compiler anew
 * for each would take longer than they do. A module that a file mocks has to be loaded by that file. What a file stubs
 * of the environment is undone behind it (test/support/unstub.ts).
 */
const together = (...folders: readonly string[]): string[] =>
  folders
    .flatMap((folder) => testsIn(`test/${folder}`))
    .filter((file) => !CHANGES_ITS_PROCESS.test(readFileSync(join(ROOT, file), 'utf8')));
const TOGETHER = together(
  'autotune',
  'bench',
  'browser',
  'ci',
  'codegen',
  'commands',
  'draft',
  'driver',
  'e2e',
  'evaluate',
  'examples',
  'engine',
  'fuzz',
  'grammar',
  'ir',
  'library',
  'models',
  'passes',
  'python',
  'report',
  'route',
  'runtime',
  'search',
  'serve',
  'system',
  'tasks',
);
/**
 * These never get built modules: what tests of the command line share mocks some, which Node loads only once; the
 * others are about sources themselves.
 */
const OF_SOURCES = [...together('cli'), 'test/driver/planCache.test.ts', 'test/evaluate/realData.test.ts'];

/** Files with cases that run in test:slow only (test/support/thorough.ts, TESTED of test/codegen/tested.ts). */
const THOROUGH = testsIn('test').filter((file) =>
  /\/support\/thorough\.js'|\bTESTED\b/.test(readFileSync(join(ROOT, file), 'utf8')),
);
/** Files that CI has no time for: what they prove at length, others there prove in part. */
const LENGTHY = [
  'autotune/cpu/measure',
  'autotune/cpu/measureStep',
  'autotune/cuda/measure',
  'autotune/cuda/measureStep',
  'autotune/cuda/tune',
  'autotune/cuda/vendorBaseline',
  'bench/checkpoint',
  'bench/gpu',
  'bench/gpuDriver',
  'bench/gpuReadRate',
  'bench/tokenizers',
  'browser/comparison',
  'browser/counts',
  'browser/explore',
  'browser/machine',
  'browser/narrow',
  'browser/search',
  'browser/tokens',
  'codegen/adapters',
  'codegen/attentionCodes',
  'codegen/attentionSlopes',
  'codegen/attentionWindow',
  'codegen/besideProducts',
  'codegen/cuda/adapters',
  'codegen/cuda/attentionCodes',
  'codegen/cuda/attentionPath',
  'codegen/cuda/attentionReach',
  'codegen/cuda/attentionSinks',
  'codegen/cuda/attentionStems',
  'codegen/cuda/attentionWgmma',
  'codegen/cuda/attentionWindow',
  'codegen/cuda/demo',
  'codegen/cuda/fewRowsAdapters',
  'codegen/cuda/fewRowsAdaptersCompiled',
  'codegen/cuda/hopperE4m3',
  'codegen/cuda/hopperE4m3Model',
  'codegen/cuda/hopperExperts',
  'codegen/cuda/layer',
  'codegen/cuda/loop',
  'codegen/cuda/micro',
  'codegen/cuda/oneColumn',
  'codegen/cuda/randomModel',
  'codegen/cuda/routingRuns',
  'codegen/cuda/rowSums',
  'codegen/cuda/shrink',
  'codegen/cuda/slotStores',
  'codegen/draw',
  'codegen/heads',
  'codegen/layer',
  'codegen/narrowPanels',
  'codegen/randomPrograms',
  'codegen/wholeRows',
  'driver/mixedIsas',
  'driver/quantize',
  'e2e/ablation',
  'e2e/cacheFp8',
  'e2e/deviceDrafts',
  'e2e/disk',
  'e2e/draftHeads',
  'e2e/draftModel',
  'e2e/engineChurn',
  'e2e/engineDevices',
  'e2e/fedArtifact',
  'e2e/generateDevices',
  'e2e/generateSmall',
  'e2e/gguf',
  'e2e/gpuPipeline',
  'e2e/gpuStages',
  'e2e/gpuTune',
  'e2e/guides',
  'e2e/inspectError',
  'e2e/logTokens',
  'e2e/longQuestions',
  'e2e/machineCode',
  'e2e/mergedAdapters',
  'e2e/metaCheckpoint',
  'e2e/mmlu',
  'e2e/sameAnswers',
  'e2e/search',
  'e2e/serveAdapters',
  'e2e/serveChat',
  'e2e/serveHarness',
  'e2e/serveStop',
  'e2e/servingDocs',
  'e2e/severalModels',
  'e2e/shards',
  'e2e/stages',
  'e2e/stepLogits',
  'e2e/steps',
  'e2e/taskTexts',
  'e2e/taskWindows',
  'e2e/tokenizerEnds',
  'e2e/twoModels',
  'e2e/twoPhase',
  'e2e/verifiers',
  'e2e/verify',
  'e2e/verifyGpu',
  'engine/adapterChurn',
  'engine/devicePolicy',
  'engine/hostileDrafts',
  'engine/memoryEngine',
  'evaluate/resume',
  'examples/golden',
  'models/draftHeads',
  'models/gguf/newerFamilies',
  'models/quantizedFamilies',
  'models/roundedSlopes',
  'models/tokenizerCache',
  'passes/copyRows',
  'passes/growth',
  'passes/packStates',
  'passes/storedFamilies',
  'python/jinja/work',
  'runtime/adapters',
  'runtime/cuda/image',
  'runtime/cuda/racecheckReports',
  'runtime/stages',
  'runtime/step',
  'search/models/judge',
].map((name) => `test/${name}.test.ts`);
/** A file that is named on the command line runs once. */
const isSlowRun = process.argv.some((argument) => /^(--project=)?slow$/.test(argument));

export default defineConfig(({ mode }) => ({
  test: {
    globalSetup: ['test/globalSetup.ts'],
    // Two more than two processors: part of a test's time is spent waiting for other processes, and for time to pass.
    maxWorkers: Math.max(4, availableParallelism() - 1),
    sequence: { sequencer: LongestFirst },
    passWithNoTests: false,
    // The machine-readable result beside the printed one: .ci/summary.mjs counts from it.
    reporters: ['default', 'json'],
    outputFile: { json: 'build/test-results.json' },
    projects: [
      // A process for each file: what it loads, compiles or sets ends with it.
      {
        test: {
          ...common,
          name: 'separate',
          include: ['test/**/*.test.ts'],
          exclude: [...TOGETHER, ...OF_SOURCES, ...LENGTHY, SLOW],
          provide: { isThorough: false },
        },
      },
      {
        plugins: mode === 'built' ? [builtModules] : [],
        test: {
          ...common,
          name: 'together',
          include: TOGETHER,
          exclude: [...OF_SOURCES, ...LENGTHY],
          isolate: false,
          setupFiles: ['test/support/unstub.ts'],
          provide: { isThorough: false },
        },
      },
      {
        test: {
          ...common,
          name: 'sources',
          include: OF_SOURCES,
          exclude: LENGTHY,
          isolate: false,
          setupFiles: ['test/support/unstub.ts'],
          provide: { isThorough: false },
        },
      },
      // What takes a minute: `npm run test:slow`.
      {
        test: {
          ...common,
          name: 'slow',
          include: [SLOW, ...LENGTHY, ...(isSlowRun ? THOROUGH : [])],
          provide: { isThorough: true },
        },
      },
    ],
  },
}));
