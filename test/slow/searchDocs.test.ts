/** docs/search.md as a reader follows it: its commands on made-up weights, and what a server answers beside them. */
import { execFile } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readSettings } from '../../settings.js';
import { type ServerProcess, startServer } from '../e2e/serverProcess.js';
import { environment, isBuilt, ROOT, start, temporaryFolder } from '../e2e/support.js';

const run = promisify(execFile);
const TEXT = readFileSync(join(ROOT, 'docs', 'search.md'), 'utf8');
const CHECKPOINTS = join(ROOT, '..', 'shared', 'checkpoints');
const VERIFIER = join(CHECKPOINTS, 'verifiers', 'qwen-prm');
const TEMPLATE =
  "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}\n{% endfor %}" +
  '{% if add_generation_prompt %}<|assistant|>{% endif %}';

const LINES = [...TEXT.matchAll(/^```sh\n(.*?)^```$/gms)].flatMap(([, code = '']) =>
  code
    .trim()
    .replaceAll(/ *\\\n */g, ' ')
    .split(/\n(?=\S)/),
);
const COMMANDS = LINES.filter((line) => line.startsWith('tilewright '));
const CURLS = LINES.filter((line) => line.startsWith('curl '));
const PROBLEMS = /^```\n(\{"problem".*?)^```$/ms.exec(TEXT)![1]!;
/** Made-up weights write no blank lines, and do not end. */
const SHORT = '--step-tokens 6 --iterations 3 --max-step-tokens 12 --temperature 2 --target cpu --threads 2';

interface Answer {
  readonly choices: readonly { readonly message: { readonly content: string } }[];
  readonly search: {
    readonly picked: number | null;
    readonly candidates: readonly {
      readonly content: string;
      readonly scores: readonly number[];
      readonly score: number;
    }[];
  };
}
interface Line {
  readonly picked: string | null;
  readonly candidates: readonly {
    readonly text: string;
    readonly scores: readonly number[];
    readonly aggregate: number;
  }[];
}

describe.skipIf(!isBuilt || !existsSync(VERIFIER))('docs/search.md', () => {
  let server: ServerProcess;
  let generator: string;
  const here = temporaryFolder();

  beforeAll(async () => {
    generator = join(temporaryFolder(), 'generator');
    const files = join(CHECKPOINTS, 'families', 'qwen3');
    await run('mkdir', ['-p', generator]);
    for (const file of readdirSync(files)) symlinkSync(join(files, file), join(generator, file));
    writeFileSync(join(generator, 'chat_template.jinja'), TEMPLATE);
    writeFileSync(join(here, 'problems.jsonl'), PROBLEMS);
    server = await startServer(generator, '--verifier', VERIFIER, '--target', 'cpu', '--threads', '2');
  });
  afterAll(async () => {
    await server?.stop();
  });

  /** Words of a command, with the files of this test. */
  const wordsOf = (command: string): readonly string[] =>
    command
      .split(' ')
      .slice(1)
      .map((word) => word.replace('path/to/generator', generator).replace('path/to/verifier', VERIFIER))
      .map((word) => (/^(problems\.jsonl|found|page\.html)$/.test(word) ? join(here, word) : word));
  const searched = async (words: readonly string[]): Promise<string> => {
    const isSearch = words[0] === 'search';
    const own = words.includes('--step-tokens') || !isSearch ? [] : SHORT.split(' ');
    const { status, stdout, stderr } = await start([...words, ...own]).ended;
    expect(status, stderr).toBe(0);
    return stdout;
  };

  it('has commands', () => expect([COMMANDS.length, CURLS.length]).toEqual([5, 2]));

  it('has commands that run, one after another', async () => {
    for (const command of COMMANDS) {
      const stdout = await searched(wordsOf(command));
      if (command.startsWith('tilewright search')) expect(stdout, command).toMatch(/^0: .+\nsecond: .+\n/);
    }
    expect(readFileSync(join(here, 'page.html'), 'utf8').trimEnd().endsWith('</html>')).toBe(true);
    expect(readdirSync(join(here, 'found', 'generator')).map((name) => name.replace(/_.*/, ''))).toEqual(
      expect.arrayContaining(['journal', 'results', 'samples']),
    );
  });

  it('has a program that runs, with the bundled model alone and with two', async () => {
    const program = join(ROOT, 'examples', 'search.mjs');
    const env = { PATH: readSettings().path, ...environment() };
    expect(TEXT.includes(readFileSync(program, 'utf8'))).toBe(true);
    for (const models of [[], [generator, VERIFIER]]) {
      const { stdout } = await run(process.execPath, [program, ...models], { cwd: ROOT, env });
      expect(stdout).toMatch(/^What is 12 · 12\? .+ \((right|wrong); steps: \d+ /m);
      expect(stdout.trim().split('\n')).toHaveLength(2);
    }
  });

  it.each(CURLS)('%s', async (command) => {
    const { stdout } = await run('bash', [
      ...['-c', command.replace(/^curl/, 'curl -sS --fail-with-body').replace('http://127.0.0.1:8000', server.url)],
    ]);
    const data = stdout
      .split('\n')
      .flatMap((line) => (line.startsWith('data: {') ? [line.slice('data: '.length)] : []));
    if (command.includes('"stream": true')) expect(stdout).toMatch(/^: steps drawn: 1\n/);
    const all = (data.length > 0 ? data : [stdout]).map((text) => JSON.parse(text) as Answer);
    const { search } = all.find((each) => 'search' in each)!;
    expect(search.candidates.length).toBeGreaterThan(1);
  });

  it('has a server that answers as the command does, to the bit', async () => {
    const options = { method: 'beam', n: 8, width: 4, iterations: 4, step_tokens: 10 };
    const flags = Object.entries(options).flatMap(([name, value]) => [`--${name.replace('_', '-')}`, String(value)]);
    const words = ['search', generator, '--verifier', VERIFIER, '--problems', join(here, 'problems.jsonl')];
    const lines = await searched([
      ...words,
      ...flags,
      '--temperature',
      '2',
      '--seed',
      '9',
      '--json',
      '--target',
      'cpu',
    ]);
    const problems = PROBLEMS.trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { readonly problem: string }).problem);
    const answers = await Promise.all(
      problems.map(async (content) => {
        const response = await fetch(`${server.url}/v1/chat/completions`, {
          ...{ method: 'POST', headers: { 'content-type': 'application/json' } },
          body: JSON.stringify({ messages: [{ role: 'user', content }], seed: 9, temperature: 2, search: options }),
        });
        return (await response.json()) as Answer;
      }),
    );
    const found = lines.trim().split('\n');
    expect(found).toHaveLength(problems.length);
    for (const [i, line] of found.entries()) {
      const { picked, candidates } = JSON.parse(line) as Line;
      const { search, choices } = answers[i]!;
      expect(search.candidates.map(({ content, scores, score }) => [content, scores, score])).toEqual(
        candidates.map(({ text, scores, aggregate }) => [text, scores, aggregate]),
      );
      expect(new Set(search.candidates.map(({ content }) => content)).size).toBeGreaterThan(1);
      expect(choices[0]!.message.content).toBe(picked);
    }
  });
});
