/** `tilewright generate MODEL` on a terminal: keys in, messages and answers out. */
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { Conversation } from '../../commands/generate.js';
import type { Continuation } from '../../commands/textGenerator.js';
import { GenerateError } from '../../engine/request.js';
import { fakeIo, type FakeIo, type Outcome, runCli } from './fakeIo.js';

const UP = '\x1b[A';
const LEFT = '\x1b[D';
const CTRL_C = '\x03';
const CTRL_D = '\x04';
const pasted = (text: string): string => `\x1b[200~${text}\x1b[201~`;

class Terminal extends PassThrough {
  readonly isTTY = true;
  isRaw = false;

  setRawMode(isRaw: boolean): void {
    this.isRaw = isRaw;
  }
}

interface Talk {
  readonly terminal: Terminal;
  readonly io: FakeIo;
  readonly said: string[];
  /** Resolves once this many messages have begun to be answered. */
  hasSaid(count: number): Promise<void>;
  readonly ended: Promise<Outcome>;
}

const ANSWER = { rest: '.' } as Continuation;
/** Keys take a few turns of the event loop. */
const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

/** A conversation whose answers are `say`'s; by default each is `ok.`. */
function talk(say: Conversation['say'] = () => Promise.resolve({ ...ANSWER, rest: 'ok.' }), isDumb = false): Talk {
  const terminal = new Terminal();
  const colour = { noColour: true, forceColour: undefined, isDumb };
  const io = fakeIo({ isTTY: true, stdin: terminal, colour });
  const said: string[] = [];
  const ended = runCli(
    ['generate', 'm', '--max-tokens', '9'],
    {
      converse: (request) => {
        expect(request).toMatchObject({ model: 'm', maxNewTokens: 9 });
        return Promise.resolve({
          isChat: true,
          close: () => Promise.resolve(),
          say: (text, turn) => {
            said.push(text);
            return say(text, turn);
          },
        });
      },
    },
    io,
  );
  const hasSaid = async (count: number): Promise<void> => {
    while (said.length < count) await settle();
  };
  return { terminal, io, said, hasSaid, ended };
}

/** An answer that lasts until it is stopped. */
const untilStopped: Conversation['say'] = (_, { onPiece, signal }) => {
  onPiece({ token: 1, logProb: -1, text: 'long' });
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve({ ...ANSWER, rest: '…' })));
};

describe('a conversation on a terminal', () => {
  it('answers what is typed, until the input ends, and leaves the terminal as it was', async () => {
    const { terminal, io, said, ended } = talk((text, { onPiece }) => {
      if (text === 'bad') return Promise.reject(new GenerateError('a prompt of 99 tokens'));
      onPiece({ token: 1, logProb: -1, text: 'ans\x1b[2J' });
      return Promise.resolve({ ...ANSWER, rest: 'wer' });
    });
    terminal.end('one\r\rbad\rtwo\r');
    const { status, stdout, stderr } = await ended;
    expect(status, stderr).toBe(0);
    expect(said).toEqual(['one', 'bad', 'two']);
    expect(stdout).toContain('ans·[2Jwer\n');
    expect(stderr).toContain('error: a prompt of 99 tokens');
    expect([stdout.split('\x1b[?2004h').length, stdout.split('\x1b[?2004l').length]).toEqual([2, 2]);
    expect([terminal.isRaw, io.listeners, terminal.listenerCount('keypress')]).toEqual([false, 0, 0]);
  });

  it('edits lines, and goes back to earlier ones', async () => {
    const { terminal, said, hasSaid, ended } = talk();
    terminal.write(`The sk iss\x7f${LEFT}${LEFT}${LEFT}y\r`);
    await hasSaid(1);
    terminal.write(`${UP} blue\r`);
    await hasSaid(2);
    terminal.write(CTRL_D);
    expect((await ended).status).toBe(0);
    expect(said).toEqual(['The sky is', 'The sky is blue']);
  });

  it('takes a paste of several lines as a part of one message, whatever keys are in it', async () => {
    const { terminal, said, hasSaid, ended } = talk();
    const paste = pasted(`def f(x):\r\n\treturn x${CTRL_C}${UP}\n\n# ü 😀${CTRL_D}\n`);
    // A terminal may hand over any part of it at a time.
    terminal.write(`Explain: ${paste.slice(0, 3)}`);
    await settle();
    terminal.write(paste.slice(3, 12));
    await settle();
    terminal.write(paste.slice(12));
    await settle();
    expect(said).toEqual([]);
    terminal.write(' please\r');
    await hasSaid(1);
    terminal.write(`${UP}\r`);
    await hasSaid(2);
    terminal.write(CTRL_D);
    await ended;
    const message = 'Explain: def f(x):\n\treturn x\n\n# ü 😀 please';
    expect(said).toEqual([message, message]);
  });

  it('drops what is typed at Ctrl-C, and is left when that is pressed twice', async () => {
    const { terminal, said, hasSaid, ended } = talk();
    terminal.write(`no${CTRL_C}`);
    await settle();
    terminal.write('yes\r');
    await hasSaid(1);
    terminal.write(CTRL_C);
    await settle();
    terminal.write(`x\x7f${CTRL_C}`);
    await settle();
    terminal.write(CTRL_C);
    const { status, stderr } = await ended;
    expect([status, said, terminal.isRaw]).toEqual([0, ['yes'], false]);
    expect(stderr.match(/Ctrl-C again leaves/g)).toHaveLength(3);
  });

  it('stops an answer at Ctrl-C, goes on, and is left when that is pressed twice', async () => {
    const { terminal, io, said, hasSaid, ended } = talk(untilStopped);
    terminal.write('one\r');
    await hasSaid(1);
    // The terminal is the system's while an answer is made: Ctrl-C is a signal.
    expect(terminal.isRaw).toBe(false);
    io.send('SIGINT');
    await settle();
    expect(terminal.isRaw).toBe(true);
    terminal.write('two\r');
    await hasSaid(2);
    io.send('SIGINT');
    io.send('SIGINT');
    const { status, stdout } = await ended;
    expect([status, said]).toEqual([0, ['one', 'two']]);
    expect(stdout).toContain('long…\n');
  });

  it('is left although the step that is computed does not end', async () => {
    const { terminal, io, hasSaid, ended } = talk(() => new Promise(() => undefined));
    terminal.write('one\r');
    await hasSaid(1);
    io.send('SIGINT');
    io.send('SIGINT');
    expect((await ended).status).toBe(0);
  });

  it('is left at SIGTERM', async () => {
    const { io, ended } = talk();
    await expect.poll(() => io.stdout.text).toContain('> ');
    io.send('SIGTERM');
    expect((await ended).status).toBe(0);
  });

  it('reads whole lines where the terminal understands no escape sequence', async () => {
    const { terminal, said, ended } = talk(undefined, true);
    terminal.end('one\ntwo\n');
    const { stdout } = await ended;
    expect(said).toEqual(['one', 'two']);
    expect(stdout).toBe('> ok.\n> ok.\n> \n');
  });
});
