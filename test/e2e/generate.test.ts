/** `tilewright generate` with the bundled model, as built. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { failure, isBuilt, ROOT, start, success, temporaryFolder, tilewright } from './support.js';
import { thorough } from '../support/thorough.js';

const DEMO = join(ROOT, 'models', 'demo');
/** Small steps have the fewest kernels to compile. */
const PLACE = ['--target', 'cpu', '--precision', 'f32', '--threads', '2', '--batch-tokens', '64'];
/** Many short texts: the first are done long before the last begin. */
const MANY = 1500;
const BRIEF = ['--ignore-eos', '--json', '--max-new-tokens', '6', '--cache-tokens', '4096'];
const generate = (...more: string[]) => tilewright(['generate', DEMO, ...PLACE, ...more]);

interface Line {
  readonly index: number;
  readonly text: string;
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
  readonly reason: string;
  readonly promptTokens: number;
}
const linesOf = (stdout: string): Line[] =>
  stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line);

describe.skipIf(!isBuilt)('generate', () => {
  it('continues each prompt as it does alone', async () => {
    const file = join(temporaryFolder(), 'prompts.jsonl');
    writeFileSync(file, '{"prompt":"The sky is"}\n{"tokens":[1,402,17]}\n{"prompt":"Two and two make"}\n');
    const { stdout } = success(await generate('--prompts', file, '--json', '--max-new-tokens', '12'));
    const lines = linesOf(stdout);
    expect(lines.map(({ index, tokens, logprobs }) => [index, tokens.length, logprobs.length])).toEqual([
      [0, 12, 12],
      [1, 12, 12],
      [2, 12, 12],
    ]);
    expect(lines[1]!.promptTokens).toBe(3);
    const alone = success(await generate('The sky is', '--max-tokens', '12'));
    expect(alone.stdout).toBe(`${lines[0]!.text}\n`);
    // Who did not ask for a GPU reads nothing about one.
    expect(alone.stderr).toMatch(/^\[[^\]]*\] device: CPU( \(.*\))?\n/);
    expect(alone.stderr).toMatch(
      /\] memory: [\d.]+ MiB \(weights .* MiB, cache 64 MiB, activations .*, scratch .*\)\n/,
    );
    expect(alone.stderr).toMatch(/12 tokens in .* tokens\/s; the first after .*; ended by --max-new-tokens\n/);
    expect(alone.stderr).not.toMatch(/GPU|libcuda|pages|room for/);
    const verbose = success(await generate('The sky is', '--max-new-tokens', '12', '--verbose'));
    expect(verbose.stderr).toMatch(/keys and values: room for 4,096 tokens, /);
    expect(verbose.stderr).toMatch(/weights, packed +[\d.]+ MiB\n/);
    expect(verbose.stderr).toMatch(/1 of 256 pages of keys and values/);
    expect(verbose.stderr).toMatch(
      // What takes less than 5 ms is left out: kernels that are cached, say.
      /first answer after [\d.]+ s: process [\d.]+, .*weights [\d.]+ \(.* in [\d.]+\).*, first token /,
    );
  });

  thorough('stops where a given text begins', async () => {
    const few = ['--json', '--max-new-tokens', '12'] as const;
    const one = async (...more: readonly string[]): Promise<Line> =>
      linesOf(success(await generate('The sky is', ...more)).stdout)[0]!;
    const { text, tokens } = await one(...few);
    expect(await one('--stop', 'never comes', ...few)).toMatchObject({ text, tokens, reason: 'length' });
    const [first = ''] = text.trim().split(' ').slice(1);
    const stopped = await one('--stop', first, '--json');
    expect(stopped.reason).toBe('stop');
    expect(text.startsWith(stopped.text)).toBe(true);
    expect(stopped.text).not.toContain(first);
  });

  thorough('gives several texts of a prompt: drawn, the best of those drawn, and found by a search', async () => {
    interface Ranked extends Line {
      readonly sample: number;
      readonly score?: number;
      readonly topLogprobs?: readonly (readonly { readonly token: number; readonly logprob: number }[])[];
    }
    const run = async (...more: string[]): Promise<readonly Ranked[]> =>
      linesOf(success(await generate('The sky is', '--json', '--max-new-tokens', '8', ...more)).stdout) as Ranked[];
    const drawn = await run('--n', '4', '--temperature', '1', '--seed', '3');
    expect(drawn.map(({ index, sample }) => [index, sample])).toEqual([0, 1, 2, 3].map((sample) => [0, sample]));
    const mean = ({ logprobs }: Line): number => logprobs.reduce((a, b) => a + b, 0) / logprobs.length;
    const best = await run('--n', '2', '--best-of', '4', '--temperature', '1', '--seed', '3');
    const ranked = drawn.map((line) => ({ ...line, score: mean(line) })).sort((a, b) => b.score - a.score);
    expect(best.map(({ text, score }) => [text, score])).toEqual(
      ranked.slice(0, 2).map(({ text, score }) => [text, score]),
    );
    const [greedy] = await run('--top-logprobs', '3');
    expect(greedy!.topLogprobs!.map(([first]) => first)).toEqual(
      greedy!.tokens.map((token, i) => ({ token, logprob: greedy!.logprobs[i] })),
    );
    const [found] = await run('--beams', '3');
    const total = (line: Line): number => line.logprobs.reduce((a, b) => a + b, 0);
    expect(found!.score).toBe(total(found!));
    expect(found!.score).toBeGreaterThanOrEqual(total(greedy!));
    const [biased] = await run('--logit-bias', `${greedy!.tokens[0]!}=-100`);
    expect(biased!.tokens[0]).not.toBe(greedy!.tokens[0]);
  });

  thorough('ends with the memory for keys and values, and with the context', async () => {
    const [cache] = linesOf(
      success(await generate('The sky is', '--ignore-eos', '--cache-tokens', '32', '--json')).stdout,
    );
    expect(cache).toMatchObject({ reason: 'cache' });
    expect(cache!.promptTokens + cache!.tokens.length).toBe(32);
  });

  it.each([
    [['--prompts', 'PROMPTS'], 'prompts.jsonl:2: token 70000: the model has 4096 tokens'],
    [['word '.repeat(3000)], /prompt 1: a prompt of [\d,]+ tokens: the model's context has /],
    [
      ['The sky is', '--cache-tokens', '60000000'],
      /--cache-tokens 60000000: expected a whole number from 16 to 4194304/,
    ],
    [['word '.repeat(40), '--cache-tokens', '32'], /--cache-tokens 32: prompt 1 alone has \d+ tokens/],
  ])('refuses %j before anything is compiled', async (argv, message) => {
    const file = join(temporaryFolder(), 'prompts.jsonl');
    writeFileSync(file, '{"tokens":[1]}\n{"tokens":[70000]}\n');
    const outcome = await tilewright([
      'generate',
      DEMO,
      ...PLACE,
      ...argv.map((each) => (each === 'PROMPTS' ? file : each)),
    ]);
    const lines = { ...outcome, stderr: outcome.stderr.replace(/^\[.*\n/gm, '') };
    expect(failure(lines).error).toMatch(message);
    expect(outcome.stderr).not.toContain('compile kernels');
  });

  thorough('keeps what was generated when it is stopped', async () => {
    const many = join(temporaryFolder(), 'prompts.txt');
    writeFileSync(many, 'The sky is\n'.repeat(MANY));
    const running = start(['generate', DEMO, ...PLACE, '--prompts', many, ...BRIEF]);
    const lines: string[] = [];
    running.process.stdout!.on('data', (text: string) => {
      if (lines.push(text) === 1) running.process.kill('SIGINT');
    });
    const { status, stdout, stderr } = await running.ended;
    expect(status, stderr).toBe(130);
    const all = linesOf(stdout);
    expect(all).toHaveLength(MANY);
    expect(all[0]).toMatchObject({ index: 0, reason: 'length' });
    expect(all.at(-1)).toMatchObject({ reason: 'aborted', tokens: [] });
    expect(stderr).toContain('stopped: what was generated is above');
  });

  thorough('ends quietly when its reader goes away', async () => {
    const many = join(temporaryFolder(), 'prompts.txt');
    writeFileSync(many, 'The sky is\n'.repeat(MANY));
    const running = start(['generate', DEMO, ...PLACE, '--prompts', many, ...BRIEF]);
    running.process.stdout!.once('data', () => running.process.stdout!.destroy());
    expect(await running.ended).toMatchObject({ status: 0, signal: null, stderr: '' });
  });
});
