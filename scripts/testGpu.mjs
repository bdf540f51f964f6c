// `npm run test:gpu`, and test-gpu.sh of the bundle: runs the compiled tests of test/gpu with Node's own test runner.
// Arguments are parts of file names; without any, all files run. The exit status is 0 only if a test ran and none
// failed, 77 if every test was skipped: a machine without a GPU has proved nothing.
import { existsSync, readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';

const NOTHING_TESTED = 77;
const folder = join(import.meta.dirname, '..', 'dist', 'test', 'gpu');
const wanted = process.argv.slice(2);

if (!existsSync(folder)) {
  process.stderr.write('error: the GPU tests are not built\nhint: npm run build\n');
  process.exit(1);
}
const files = readdirSync(folder)
  .filter((name) => name.endsWith('.gpu.js'))
  .filter((name) => wanted.length === 0 || wanted.some((part) => name.includes(part)))
  .sort();
if (files.length === 0) {
  process.stderr.write(
    `error: no GPU test has ${wanted.join(' or ')} in its name\nhint: ${readdirSync(folder)
      .filter((name) => name.endsWith('.gpu.js'))
      .join(', ')}\n`,
  );
  process.exit(1);
}

// One file at a time: they share a GPU, and times are measured.
const stream = run({ files: files.map((name) => join(folder, name)), concurrency: 1 });
const counts = { passed: 0, failed: 0, skipped: 0 };
const reasons = new Map();
const isTest = ({ details }) => details?.type !== 'suite';
stream.on('test:pass', (test) => {
  // A file that defines no test counts as one passed test with the name of the file, but it is not a test.
  if (files.some((name) => test.name.endsWith(name))) return;
  if (test.skip === undefined) {
    if (isTest(test)) counts.passed += 1;
  } else {
    // A skipped suite counts as one test: its tests are not even listed.
    counts.skipped += 1;
    const names = reasons.get(String(test.skip)) ?? [];
    names.push(`${basename(test.file ?? '', '.gpu.js')}: ${test.name}`);
    reasons.set(String(test.skip), names);
  }
});
stream.on('test:fail', (test) => {
  if (isTest(test)) counts.failed += 1;
});
stream.on('end', () => {
  // Printed after the reporter's own last lines.
  setImmediate(() => {
    if (reasons.size > 0) {
      const rule = '!'.repeat(80);
      const lines = [...reasons].flatMap(([reason, names]) => [
        `!! SKIPPED: ${reason}`,
        ...names.map((name) => `!!   ${name}`),
      ]);
      process.stdout.write(`\n${[rule, ...lines, rule].join('\n')}\n`);
    }
    process.stdout.write(`\n${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped\n`);
    process.exitCode = counts.failed > 0 ? 1 : counts.passed === 0 ? NOTHING_TESTED : 0;
  });
});
stream.compose(spec).pipe(process.stdout);
