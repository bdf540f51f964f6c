import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Files whose tests compile a lot come first: a long one that came last would leave the other processors idle. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification): boolean => /\/test\/(codegen|e2e)\//.test(moduleId);
    const sorted = await super.sort(files);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

export default defineConfig({
  test: {
    environment: 'node',
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/globalSetup.ts'],
    // Compiling a kernel or a whole small model takes seconds on two cores; anything slower sets its own limit.
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // Processes, not threads: a crash in native code then names the test file that caused it.
    pool: 'forks',
    // Two even on two processors: much of a test's time is spent waiting for compilers and other processes.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    sequence: { sequencer: LongestFirst },
    passWithNoTests: false,
    // The machine-readable result beside the printed one: .ci/summary.mjs counts from it.
    reporters: ['default', 'json'],
    outputFile: { json: 'build/test-results.json' },
    // A test must not see what another one mocked.
    restoreMocks: true,
  },
});
