/**
 * A short evaluation and a short text under compute-sanitizer: no access outside memory, no race but those that
 * racecheckReports.ts knows to be false, no misused barrier, no failed driver call. Texts run the kernels of few rows,
 * and attention of decoding in clusters.
 */
import assert from 'node:assert/strict';
import { accessSync, constants, writeFileSync } from 'node:fs';
import { delimiter, isAbsolute, join } from 'node:path';
import { before, describe, it } from 'node:test';
import { cudaAvailable } from '../../runtime/cuda/addon.js';
import { expand } from '../../runtime/cuda/findNvrtc.js';
import { readSettings } from '../../settings.js';
import { DEMO, EXAMPLES, MAIN, start, tilewright, type Ended } from './command.js';
import { decodingKernels } from './decodingKernels.js';
import { deviceHere } from './device.js';
import { randomTokens } from './sequences.js';
import { knownKernels, unknownReports } from './racecheckReports.js';
import { temporaryFolder } from './support.js';
import { trapScript } from './trap.js';

const TOOL = 'compute-sanitizer';
/** The tool's exit status when it finds something. The command itself never uses it. */
const FOUND = 99;
const SECONDS = 170;

async function findTool(): Promise<string | undefined> {
  const { computeSanitizer, path, cudaToolkits } = readSettings();
  if (computeSanitizer !== undefined) return computeSanitizer;
  const folders = [
    ...path.split(delimiter).filter(isAbsolute),
    ...(await expand(cudaToolkits)).map((toolkit) => join(toolkit, 'bin')),
  ];
  return folders
    .map((folder) => join(folder, TOOL))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

const { arch, skip: skipDevice } = await deviceHere();
const tool = await findTool();
const skip =
  skipDevice !== false
    ? skipDevice
    : tool === undefined
      ? `${TOOL} is neither on PATH nor in a CUDA toolkit; TILEWRIGHT_COMPUTE_SANITIZER=/path/to/${TOOL} names one`
      : false;

const under = (check: string, args: readonly string[]): Promise<Ended> =>
  start(
    tool!,
    [
      '--tool',
      check,
      '--target-processes',
      'all',
      '--launch-timeout',
      '60',
      '--error-exitcode',
      String(FOUND),
      process.execPath,
      ...args,
    ],
    SECONDS,
  );

/** The tool's summary lines, one for each process that used the device. */
const summaries = (output: string): string[] => output.split('\n').filter((line) => / SUMMARY: /.test(line));
const CLEAN = /ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards displayed \(0 errors, 0 warnings\)/;
/** One that counts reports, of which every one is known to be false. */
const COUNTED = /RACECHECK SUMMARY: \d+ hazards? displayed \(\d+ errors?, 0 warnings\)/;

/** Whether racecheck reported nothing but what is known to be false. */
function hasKnownOnly(output: string): boolean {
  const available = cudaAvailable();
  if (typeof arch !== 'string' || !available.ok) return false;
  const { sharedBytesPerBlock, multiprocessors } = available.devices[0]!;
  return unknownReports(output, knownKernels({ arch, sharedBytesPerBlock, multiprocessors })).length === 0;
}

const CACHE = ['--cache-tokens', '1024'];

describe('compute-sanitizer', { skip, concurrency: true }, () => {
  const prompts = join(temporaryFolder(), 'prompts.jsonl');
  const sizes = ['--target', 'cuda', '--batch-tokens', '256'];
  /** Two pages and more, a prompt of one token, and one that decodes beside a longer one. */
  const LENGTHS = [40, 1, 17];
  const COMMANDS: readonly (readonly [what: string, args: readonly string[], done: RegExp])[] = [
    [
      'an evaluation',
      ['run', DEMO, ...sizes, '--task', 'hellaswag', '--data', EXAMPLES, '--limit', '3'],
      /3 questions in/,
    ],
    [
      'a text',
      ['generate', DEMO, ...sizes, ...CACHE, '--prompts', prompts, '--json', '--ignore-eos', '--max-new-tokens', '4'],
      /"index":2,/,
    ],
  ];

  before(async () => {
    writeFileSync(
      prompts,
      LENGTHS.map((length, i) => `${JSON.stringify({ tokens: randomTokens(3 + i, length) })}\n`).join(''),
    );
    // Compiles the kernels, which takes long under the tool.
    for (const [, args] of COMMANDS) await tilewright(args, SECONDS);
  });

  it('sees the kernels of few rows and attention in clusters', () => {
    const kinds = decodingKernels(cudaAvailable());
    console.log(`decoding: ${kinds.join(', ')}`);
    if (arch === 'sm_90a') for (const kind of ['skinnyWgmma', 'attention in clusters']) assert(kinds.includes(kind));
  });

  for (const check of ['memcheck', 'racecheck', 'synccheck']) {
    for (const [what, args, done] of COMMANDS)
      it(`finds nothing in ${what} of the demo: ${check}`, async () => {
        const begin = performance.now();
        const { status, output } = await under(check, [MAIN, ...args]);
        const told = output
          .split('\n')
          .filter((line) => line.startsWith('========='))
          .slice(0, 40)
          .join('\n');
        const isExcused = check === 'racecheck' && status === FOUND && hasKnownOnly(output);
        assert.equal(
          isExcused ? 0 : status,
          0,
          `${check} ended with ${status ?? 'a signal'}:\n${told}\n${output.slice(-1500)}`,
        );
        assert(summaries(output).length > 0, `${check} told nothing:\n${output.slice(-1500)}`);
        for (const line of summaries(output))
          assert(CLEAN.test(line) || (isExcused && COUNTED.test(line)), `${line}\n${told}`);
        // Ensures that the command really ran.
        assert.match(output, done);
        console.log(
          `${check}, ${what}: ${summaries(output).length} processes ${isExcused ? 'with known reports' : 'clean'}, ` +
            `${((performance.now() - begin) / 1000).toFixed(0)} s`,
        );
      });
  }

  it('finds a bad access in a child of the observed process', async () => {
    const args = ['--input-type=module', '-e', trapScript()];
    const outer =
      "const { spawnSync } = await import('node:child_process'); " +
      `spawnSync(process.execPath, ${JSON.stringify(args)}, { stdio: 'inherit' });`;
    const { output } = await under('memcheck', ['--input-type=module', '-e', outer]);
    assert.match(output, /Invalid __global__ write/);
    assert(
      summaries(output).some((line) => !CLEAN.test(line)),
      output.slice(-1500),
    );
  });
});
