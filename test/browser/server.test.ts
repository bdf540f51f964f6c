/** The page of a server in a browser, on a server of the test that answers what is hard to get from a real one. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { serverPage } from '../../report/writePage.js';
import { CHROMIUM, clippedIn, useBrowser } from '../support/browser.js';
import { thorough } from '../support/thorough.js';

if (CHROMIUM === undefined) console.warn('SKIPPED test/browser/server.test.ts: there is no chromium');

const HOSTILE = '<img src=x onerror=alert(1)></script>\u202e';
const FINGERPRINT = 'fp_0123456789abcdef';

/** What the server does next. */
let key: string | undefined;
let hasChat = true;
let hasJudge = false;
let answer: (body: Body, response: ServerResponse) => Promise<void> | void;
let generated = 0;
const asked: Body[] = [];
const closed: Body[] = [];

interface Body {
  readonly model: string;
  readonly messages?: readonly { readonly role: string; readonly content: string }[];
  readonly prompt?: string;
  readonly seed?: number;
  readonly temperature?: number;
  readonly max_tokens?: number;
  readonly search?: object;
}

function event(response: ServerResponse, choice: object | undefined, more: object = {}): void {
  const choices = choice === undefined ? [] : [{ index: 0, ...choice }];
  response.write(`data: ${JSON.stringify({ choices, seed: 77, system_fingerprint: FINGERPRINT, ...more })}\n\n`);
}

/** Pieces of a text, its end and what was used. */
function say(response: ServerResponse, pieces: readonly string[], isChat = true): void {
  if (!response.headersSent) response.setHeader('content-type', 'text/event-stream');
  for (const piece of pieces)
    event(response, isChat ? { delta: { content: piece }, finish_reason: null } : { text: piece, finish_reason: null });
  event(response, isChat ? { delta: {}, finish_reason: 'stop' } : { text: '', finish_reason: 'length' });
  event(response, undefined, { usage: { prompt_tokens: 5, completion_tokens: pieces.length } });
  response.end('data: [DONE]\n\n');
}

function metricsText(): string {
  generated += 100;
  const labels = 'model_name="demo",engine="0"';
  const buckets = [0.01, 0.1, '+Inf'].map(
    (le, i) => `vllm:inter_token_latency_seconds_bucket{${labels},le="${le}"} ${[0, generated, generated][i]!}`,
  );
  return [
    `# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{${labels}} ${generated}`,
    `vllm:num_requests_running{${labels}} 3\nvllm:num_requests_waiting{${labels}} 12`,
    `vllm:kv_cache_usage_perc{${labels}} 0.25`,
    `vllm:prefix_cache_queries_total{${labels}} ${generated}\nvllm:prefix_cache_hits_total{${labels}} ${generated / 2}`,
    ...[...buckets, `vllm:inter_token_latency_seconds_sum{${labels}} ${generated * 0.05}`],
    `vllm:request_success_total{${labels},finished_reason="stop"} 7`,
    `vllm:request_success_total{${labels},finished_reason="length"} 2\n`,
  ].join('\n');
}

async function route(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const path = request.url!.split('?')[0];
  if (path === '/') return void response.setHeader('content-type', 'text/html').end(serverPage());
  if (path === '/metrics') return void response.end(metricsText());
  if (key !== undefined && request.headers.authorization !== `Bearer ${key}`)
    return void response.writeHead(401).end('{"error":{"message":"There is no such key."}}');
  if (path === '/v1/models')
    return void response.end(
      JSON.stringify({
        data: [
          { id: 'demo', max_model_len: 512 },
          { id: HOSTILE },
          ...(hasJudge ? [{ id: 'judge', gives_scores: true }] : []),
        ],
      }),
    );
  if (path === '/tokenizer_info') return void response.end(JSON.stringify(hasChat ? { chat_template: 'x' } : {}));
  const body = JSON.parse(await text(request)) as Body;
  asked.push(body);
  response.on('close', () => !response.writableFinished && closed.push(body));
  await answer(body, response);
}

describe.skipIf(CHROMIUM === undefined)('the page of a server', () => {
  const browser = useBrowser();
  const server = createServer((request, response) => void route(request, response));
  let address = '';
  beforeAll(async () => {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    address = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  });
  afterAll(() => {
    server.closeAllConnections();
    server.close();
  });
  beforeEach(() => {
    [key, hasChat, hasJudge] = [undefined, true, false];
    answer = (_body, response) => say(response, ['Hel', 'lo']);
    asked.length = 0;
    closed.length = 0;
  });

  const open = async (options = {}): Promise<Page> => {
    const page = await browser.visit(address, options);
    await page.waitForSelector('.title p:has-text("demo")');
    return page;
  };
  /** One page for all that need no other: the conversation of the test before is dropped. */
  let shared: Page | undefined;
  const fresh = async (): Promise<Page> => {
    if (shared === undefined) return (shared = await open());
    if (await shared.locator('button:has-text("New")').isEnabled()) await shared.click('button:has-text("New")');
    await expect.poll(() => shared!.locator('.answered').count()).toBe(0);
    return shared;
  };
  const ask = async (page: Page, question: string): Promise<void> => {
    await page.fill('#draft', question);
    await page.press('#draft', 'Enter');
  };
  const lastAnswer = (page: Page) => page.locator('.answered').last();

  it('offers searches where there is a verifier, and shows which text was picked', async () => {
    hasJudge = true;
    answer = (_body, response) => {
      response.setHeader('content-type', 'text/event-stream');
      response.write(': steps drawn: 1\n\n');
      event(response, { delta: { content: 'Four.' }, finish_reason: null });
      const search = { picked: 1, candidates: [{ score: 0.5 }, { score: 0.75 }] };
      event(response, { delta: {}, finish_reason: 'stop' }, { search });
      response.end('data: [DONE]\n\n');
    };
    const page = await open();
    await ask(page, 'First');
    await expect.poll(() => lastAnswer(page).textContent()).toContain('ended by itself');
    await page.selectOption('label:has-text("Search") select', 'beam');
    await page.fill('label:has-text("Most tokens of a step") input', '60');
    await ask(page, 'Two and two?');
    await expect.poll(() => lastAnswer(page).textContent()).toContain('text 2 of 2, score 0.750');
    expect(asked[0]).not.toHaveProperty('search');
    expect(asked[1]).toMatchObject({
      messages: [{ role: 'user', content: 'Two and two?' }],
      search: { method: 'beam', max_step_tokens: 60 },
    });
    expect(asked[1]).not.toHaveProperty('max_tokens');
    await page.close();
  });

  it('shows an answer as it comes, with its seed, its fingerprint and what was asked', async () => {
    let goOn: () => void = () => undefined;
    const wait = new Promise<void>((resolve) => (goOn = resolve));
    answer = async (_body, response) => {
      response.setHeader('content-type', 'text/event-stream');
      event(response, { delta: { reasoning: 'Hm.' }, finish_reason: null });
      event(response, { delta: { content: 'Hel' }, finish_reason: null });
      await wait;
      say(response, ['lo']);
    };
    const page = await fresh();
    await page.fill('label:has-text("Temperature") input', '0.5');
    await page.fill('label:has-text("Seed") input', '77');
    await page.fill('label:has-text("Most tokens") input', '9');
    await page.fill('label:has-text("System prompt") textarea', 'Be kind.');
    await ask(page, 'Hi');
    await expect.poll(() => lastAnswer(page).textContent()).toBe('ReasoningHm.Hel');
    expect(await page.locator('button:has-text("Stop")').count()).toBe(1);
    goOn();
    await expect.poll(() => lastAnswer(page).textContent()).toContain('Hello');
    await expect.poll(() => lastAnswer(page).textContent()).toContain('seed 77');
    expect(await page.getAttribute('[data-fingerprint]', 'data-fingerprint')).toBe(FINGERPRINT);
    expect(asked[0]).toEqual({
      ...{ model: 'demo', temperature: 0.5, seed: 77, max_tokens: 9, stream: true },
      stream_options: { include_usage: true },
      messages: [
        { role: 'system', content: 'Be kind.' },
        { role: 'user', content: 'Hi' },
      ],
    });
    // What was said before goes with the next question.
    await ask(page, 'And?');
    await expect
      .poll(() => asked[1]?.messages?.map(({ content }) => content))
      .toEqual(['Be kind.', 'Hi', 'Hello', 'And?']);
    for (const label of ['Temperature', 'Seed', 'Most tokens']) await page.fill(`label:has-text("${label}") input`, '');
    await page.fill('label:has-text("System prompt") textarea', '');
    await expect.poll(() => page.locator('button:has-text("Send")').count()).toBe(1);
  });

  it('runs an answer again with its seed, and says whether it is the same', async () => {
    const page = await fresh();
    await ask(page, 'Hi');
    await page.click('button:has-text("Run again")');
    await expect.poll(() => page.textContent('.again')).toBe('Asked again: the same text.');
    expect(asked.map(({ seed }) => seed)).toEqual([undefined, 77]);
    answer = (_body, response) => say(response, ['Help']);
    await page.click('button:has-text("Run again")');
    await expect.poll(() => page.textContent('.again')).toBe('Asked again: another text, from character 4 on.');
  });

  it('stops: the server sees the connection close, and the text so far stays', async () => {
    answer = (_body, response) =>
      event(response.setHeader('content-type', 'text/event-stream'), { delta: { content: 'On and' } });
    const page = await fresh();
    await ask(page, 'Hi');
    await expect.poll(() => lastAnswer(page).textContent()).toBe('On and');
    await page.click('button:has-text("Stop")');
    await expect.poll(() => lastAnswer(page).textContent()).toContain('stopped');
    await expect.poll(() => closed.length).toBe(1);
    expect(await page.locator('button:has-text("Run again")').count()).toBe(0);
    // Escape does the same.
    await ask(page, 'Again');
    await expect.poll(() => lastAnswer(page).textContent()).toBe('On and');
    await page.press('#draft', 'Escape');
    await expect.poll(() => closed.length).toBe(2);
  });

  thorough('continues texts of a model without a template', async () => {
    hasChat = false;
    answer = (_body, response) => say(response, [' blue'], false);
    const page = await open();
    await expect.poll(() => page.getAttribute('#draft', 'placeholder')).toBe('Beginning of a text');
    await ask(page, 'The sky is ');
    await expect.poll(() => lastAnswer(page).textContent()).toContain(' blue');
    expect(asked[0]).toMatchObject({ prompt: 'The sky is ', max_tokens: 256 });
  });

  thorough('asks for a key where the server wants one, and keeps it nowhere', async () => {
    key = 'secret';
    const page = await browser.visit(address);
    await page.waitForSelector('.key');
    await page.fill('.key input', 'wrong');
    await page.press('.key input', 'Enter');
    await expect.poll(() => page.textContent('.key')).toContain('There is no such key.');
    await page.fill('.key input', 'secret');
    await page.press('.key input', 'Enter');
    await page.waitForSelector('.title p:has-text("demo")');
    await ask(page, 'Hi');
    await expect.poll(() => lastAnswer(page).textContent()).toContain('Hello');
    const kept = await page.evaluate<string>(
      'JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])',
    );
    expect(kept).not.toContain('secret');
  });

  it('shows texts, names and errors as text', async () => {
    answer = (_body, response) => say(response, [HOSTILE]);
    const page = await fresh();
    await ask(page, HOSTILE);
    await expect.poll(() => page.locator('.answered .said').textContent()).toBe(HOSTILE);
    expect(await page.locator('.asked').textContent()).toBe(HOSTILE);
    answer = (_body, response) => void response.writeHead(400).end(JSON.stringify({ error: { message: HOSTILE } }));
    await ask(page, 'x');
    await expect.poll(() => lastAnswer(page).textContent()).toContain('<img src=x');
    answer = (_body, response) => {
      response.setHeader('content-type', 'text/event-stream');
      event(response, undefined, { error: { message: 'not finite' } });
      response.end('data: [DONE]\n\n');
    };
    await ask(page, 'y');
    await expect.poll(() => lastAnswer(page).textContent()).toContain('not finite');
    expect(await page.locator('img').count()).toBe(0);
    await page.click('button:has-text("New")');
    await expect.poll(() => page.locator('.answered').count()).toBe(0);
  });

  it('draws what /metrics says', async () => {
    const page = await fresh();
    const chart = (title: string): Promise<string | null> => page.textContent(`[data-chart="${title}"] dl`);
    await expect.poll(() => chart('Requests')).toBe('running3waiting12');
    await expect.poll(() => chart('Cache in use')).toBe('of its pages25 %');
    await expect.poll(() => chart('Time between tokens')).toBe('mean50 ms99 % within0.10 s');
    await expect.poll(() => chart('Prompts found in the cache')).toBe('of their tokens50 %');
    await expect.poll(() => chart('Tokens a second')).toMatch(/^written[1-9]/);
    expect(await page.textContent('[data-totals]')).toMatch(/^Since the server began: 9 texts, [\d,]+ tokens\./);
  });

  thorough('fits a telephone, in both of its parts, and goes by keyboard', async () => {
    const page = await open({ width: 390, isDark: true });
    await ask(page, 'a'.repeat(400));
    await expect.poll(() => lastAnswer(page).textContent()).toContain('seed 77');
    expect(await clippedIn(page)).toEqual([]);
    expect(await page.locator('.live-part').isVisible()).toBe(false);
    await page.focus('nav a:has-text("Live")');
    await page.keyboard.press('Enter');
    await expect.poll(() => page.locator('.live-part').isVisible()).toBe(true);
    expect(await clippedIn(page)).toEqual([]);
    expect(await page.evaluate('getComputedStyle(document.body).backgroundColor')).toBe('rgb(20, 23, 27)');
  });
});
