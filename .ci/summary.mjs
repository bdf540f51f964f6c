// Prints `N passed, M failed, K skipped` from vitest's JSON report (first argument).
// Exits with 1 where a test failed, a test file could not be loaded, no test ran or there is no report.
import { readFileSync } from 'node:fs';

const path = process.argv[2] ?? 'build/test-results.json';
let report;
try {
  report = JSON.parse(readFileSync(path, 'utf8'));
} catch (error) {
  console.error(`no test report at ${path} (${error.message}): the build or lint failed before the tests; see above`);
  console.log('0 passed, 0 failed, 0 skipped');
  process.exit(1);
}

const counts = { passed: 0, failed: 0, skipped: 0 };
for (const file of report.testResults) {
  for (const test of file.assertionResults) {
    if (test.status === 'passed') counts.passed += 1;
    else if (test.status === 'failed') counts.failed += 1;
    else counts.skipped += 1;
  }
  // A file that throws while it is loaded has no failed test of its own, but its tests did not run.
  const hasFailedTest = file.assertionResults.some((test) => test.status === 'failed');
  if (file.status === 'failed' && !hasFailedTest) {
    console.error(`could not run ${file.name}: ${file.message}`);
    counts.failed += 1;
  }
}
// An unhandled error outside every test makes the run unsuccessful without a failed test.
if (!report.success && counts.failed === 0) {
  console.error('the run failed outside every test; see above');
  counts.failed = 1;
}

console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exit(counts.failed === 0 && counts.passed > 0 ? 0 : 1);
