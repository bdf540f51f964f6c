import { defineConfig } from 'vitest/config';

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
    passWithNoTests: false,
    // The machine-readable result beside the printed one: .ci/summary.mjs counts from it.
    reporters: ['default', 'json'],
    outputFile: { json: 'build/test-results.json' },
    // A test must not see what another one mocked.
    restoreMocks: true,
  },
});
