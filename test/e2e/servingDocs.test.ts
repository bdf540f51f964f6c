/** docs/serving.md as a reader follows it: its commands and programs, and the page in a browser, on a real server. */
import { existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { execFile } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CHROMIUM, useBrowser } from '../support/browser.js';
import { type ServerProcess, startServer } from './serverProcess.js';
import { isBuilt, ROOT, temporaryFolder } from './support.js';

const run = promisify(execFile);
const TEXT = readFileSync(join(ROOT, 'docs', 'serving.md'), 'utf8');
const TEMPLATE =
  "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}" +
  '{% if add_generation_prompt %}assistant:{% endif %}';

const blocksOf = (language: string): readonly string[] =>
  [...TEXT.matchAll(/^```(\w+)\n(.*?)^```$/gms)].flatMap(([, name, code = '']) => (name === language ? [code] : []));

/** Commands that ask a server. Lines that go on with one are indented. */
const CURLS = blocksOf('sh')
  .flatMap((block) => block.replaceAll(/ *\\\n */g, ' ').split(/\n(?=\S)/))
  .filter((line) => line.startsWith('curl '));
const isOfJudge = (command: string): boolean => command.includes('"judge"');
const VERIFIER = join(ROOT, '..', 'shared', 'checkpoints', 'verifiers', 'qwen-prm');
const hasVerifier = existsSync(VERIFIER);

describe.skipIf(!isBuilt)('docs/serving.md', () => {
  let server: ServerProcess;
  const here = (text: string): string => text.replaceAll('http://127.0.0.1:8000', server.url);

  beforeAll(async () => {
    // The bundled model, as one that was made for chats.
    const model = temporaryFolder();
    const demo = join(ROOT, 'models', 'demo');
    for (const file of readdirSync(demo)) symlinkSync(join(demo, file), join(model, file));
    writeFileSync(join(model, 'chat_template.jinja'), TEMPLATE);
    const names = ['--served-model-name', 'llama', '--served-model-name', 'demo'];
    const judge = hasVerifier ? ['--verifier', VERIFIER, '--verifier-name', 'judge'] : [];
    server = await startServer(model, ...names, ...judge, '--target', 'cpu', '--threads', '2');
  });
  afterAll(async () => {
    await server?.stop();
  });

  it('has commands', () => expect(CURLS.length).toBeGreaterThanOrEqual(5));

  it.each(CURLS.filter((command) => hasVerifier || !isOfJudge(command)))('%s', async (command) => {
    const { stdout } = await run('bash', ['-c', here(command).replace(/^curl/, 'curl -sS --fail-with-body')]);
    const answers = stdout.includes('data: ')
      ? stdout.split('\n').flatMap((line) => (line.startsWith('data: {') ? [line.slice('data: '.length)] : []))
      : [stdout];
    expect(answers.length).toBeGreaterThan(0);
    for (const answer of answers) expect(JSON.parse(answer)).not.toHaveProperty('error');
    if (command.includes('guided_choice')) expect(stdout).toMatch(/"text":"(red|green|blue)"/);
    if (command.includes('json_schema')) {
      const { choices } = JSON.parse(stdout) as { choices: { message: { content: string }; finish_reason: string }[] };
      expect(choices[0]!.finish_reason).toBe('stop');
      expect(JSON.parse(choices[0]!.message.content)).toEqual({ name: expect.any(String) });
    }
  });

  it('has a program for Node that works', async () => {
    const [program = ''] = blocksOf('js');
    expect(program).toContain("from 'openai'");
    const code = here(program).replace('seed: 7,', 'seed: 7, max_tokens: 8,');
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', code], { cwd: ROOT });
    expect(stdout).toMatch(/\S+\n$/);
    expect(stdout).not.toContain('undefined');
  });

  describe.skipIf(CHROMIUM === undefined)('the page', () => {
    const browser = useBrowser();

    it('chats, asks again for the same text, and shows what the server does', async () => {
      const page = await browser.visit(`${server.url}/`);
      await page.waitForSelector('.options');
      await page.fill('label:has-text("Most tokens") input', '24');
      await page.fill('#draft', 'What is two and two?');
      await page.press('#draft', 'Enter');
      await expect.poll(() => page.locator('.answered').textContent()).toMatch(/24 tokens, first after .*seed \d+/);
      await page.click('button:has-text("Run again")');
      await expect.poll(() => page.textContent('.again')).toBe('Asked again: the same text.');
      // Both, and what was asked before.
      await expect.poll(() => page.textContent('[data-totals]')).toMatch(/began: ([2-9]|\d\d+) texts, \d+ tokens/);
      await expect.poll(() => page.textContent('[data-chart="Time between tokens"] dl')).toMatch(/^mean[\d.]+ ms/);
    });
  });
});
