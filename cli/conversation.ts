/** `tilewright generate MODEL` on a terminal: each message is answered, and the answer appears as it is made. */
import { createInterface, emitKeypressEvents, type Interface, type Key } from 'node:readline';
import { PassThrough } from 'node:stream';
import type { Conversation, ConverseRequest } from '../commands/generate.js';
import type { WithTargetChoice } from '../driver/precision.js';
import { UserError } from '../errors.js';
import type { Input, Io } from './io.js';
import { printable, printError } from './print.js';
import type { Face } from './ui.js';
import { type Context, sameCommand, withUi } from './work.js';

const CHAT = 'a conversation, written by the chat template';
const NO_CHAT = 'no chat template: each message is continued by itself';
const KEYS = 'Ctrl-C stops an answer, and leaves when pressed twice; Ctrl-D leaves';
const ONCE_MORE = 'Ctrl-C again leaves, and so does Ctrl-D';

/** Ends with the input, with Ctrl-D, or with Ctrl-C pressed twice. Once, it ends the answer, or drops what is typed. */
export async function converse(
  context: Context,
  input: Input,
  request: Omit<WithTargetChoice<ConverseRequest>, 'signal'>,
  face: Face,
): Promise<void> {
  const { io } = context;
  const advice = (): string => `nothing was generated yet; the same command starts again:\n  ${sameCommand(context)}`;
  const { value: conversation } = await withUi(context, { ...face, isJson: false, advice }, async (ui) => {
    const story = await import('../commands/generate.js');
    return story.converse(request, ui);
  });
  let answer: AbortController | undefined;
  let isPressed = false;
  let leave: () => void = () => undefined;
  const left = new Promise<undefined>((resolve) => {
    leave = () => resolve(undefined);
  });
  const interrupt = (): void => {
    answer?.abort();
    if (isPressed) return leave();
    isPressed = true;
    if (answer === undefined && !face.isQuiet) io.stderr.write(`${ONCE_MORE}\n`);
  };
  const endStop = io.onStop((signal) => {
    if (signal === 'SIGINT') return interrupt();
    answer?.abort();
    leave();
  });
  const typed = typedMessages(io, input, {
    onInterrupt: interrupt,
    onKey: () => {
      isPressed = false;
    },
  });
  try {
    if (!face.isQuiet) io.stderr.write(`${conversation.isChat ? CHAT : NO_CHAT}; ${KEYS}\n`);
    for (;;) {
      const message = await Promise.race([typed.next(), left]);
      if (message === undefined) break;
      if (message.trim() === '') continue;
      isPressed = false;
      answer = new AbortController();
      // Who leaves does not wait for the step that is computed.
      const isDone = await Promise.race([say(context, conversation, message, answer.signal).then(() => true), left]);
      answer = undefined;
      if (isDone === undefined) break;
    }
    io.stdout.write('\n');
  } finally {
    typed.close();
    endStop();
    await conversation.close();
  }
}

/** An answer as it is made, or why there is none. */
async function say({ io }: Context, conversation: Conversation, message: string, signal: AbortSignal): Promise<void> {
  const show = (text: string): void => {
    io.stdout.write(printable(text));
  };
  try {
    const { rest } = await conversation.say(message, { onPiece: ({ text }) => show(text), signal });
    show(`${rest}\n`);
  } catch (error) {
    const { GenerateError } = await import('../engine/request.js');
    if (!(error instanceof UserError || error instanceof GenerateError)) throw error;
    printError(io, error instanceof UserError ? error : new UserError(error.message, START_AGAIN));
  }
}

const START_AGAIN = 'start a new conversation, or give more memory: --cache-tokens';

const PROMPT = '> ';
/** Messages that arrow keys go back to. */
const HISTORY = 500;
/** Stands for a line end of a paste while the line is edited. */
const LINE_END = '␊';
/** Terminals then say where a paste begins and ends (xterm's control sequences, "bracketed paste mode"). */
const BRACKETS = { on: '\x1b[?2004h', off: '\x1b[?2004l' } as const;

export interface TypedMessages {
  /** The next message; undefined once the input ends, or Ctrl-D is pressed, or this is closed. */
  next(): Promise<string | undefined>;
  /** Leaves the terminal as it was found. */
  close(): void;
}

export interface Listener {
  /** Ctrl-C while a message is typed. What was typed is dropped. */
  onInterrupt(): void;
  /** Any other key. */
  onKey(): void;
}

export const typedMessages = (io: Io, input: Input, listener: Listener): TypedMessages =>
  io.colour.isDumb ? new PlainLines(io, input) : new EditedLines(io, input, listener);

/** The line that is being edited. */
interface Open {
  readonly line: Interface;
  /** Takes the place of the terminal, so that pastes do not reach the line key by key. */
  readonly keys: PassThrough;
  end(message: string | undefined): void;
}

/** Reads the terminal only while a message is typed: otherwise Ctrl-C and Ctrl-Z are the system's. */
class EditedLines implements TypedMessages {
  readonly #io: Io;
  readonly #input: Input;
  readonly #listener: Listener;
  #history: string[] = [];
  #open: Open | undefined;
  /** Keys and pastes that came behind the end of a message. */
  readonly #ahead: ((open: Open) => void)[] = [];
  /** What of a paste has arrived. */
  #paste: string[] | undefined;
  #isOver = false;
  readonly #onKeypress = (text: string | undefined, key: Key): void => this.#take(text, key);
  readonly #onEnd = (): void => this.close();

  constructor(io: Io, input: Input, listener: Listener) {
    this.#io = io;
    this.#input = input;
    this.#listener = listener;
    emitKeypressEvents(input);
    input.on('keypress', this.#onKeypress);
    input.on('end', this.#onEnd);
    io.stdout.write(BRACKETS.on);
  }

  next(): Promise<string | undefined> {
    if (this.#isOver && this.#ahead.length === 0) return Promise.resolve(undefined);
    return new Promise((resolve) => {
      const keys = Object.assign(new PassThrough(), {
        setRawMode: (isRaw: boolean): unknown => this.#input.setRawMode?.(isRaw),
      });
      const line = createInterface({
        input: keys,
        output: this.#io.stdout,
        terminal: true,
        prompt: PROMPT,
        history: [...this.#history],
        historySize: HISTORY,
        removeHistoryDuplicates: true,
      });
      const end = (message: string | undefined): void => {
        if (this.#open?.line !== line) return;
        this.#open = undefined;
        this.#input.pause();
        line.close();
        resolve(message);
      };
      line.on('history', (history) => {
        this.#history = history;
      });
      line.on('line', (typed) => end(typed.replaceAll(LINE_END, '\n')));
      line.on('close', () => end(undefined));
      line.on('SIGINT', () => {
        this.#io.stdout.write('^C\n');
        this.#listener.onInterrupt();
        end('');
      });
      const open: Open = { line, keys, end };
      this.#open = open;
      line.prompt();
      while (this.#ahead.length > 0 && this.#open === open) this.#ahead.shift()!(open);
      if (this.#open !== open) return;
      if (this.#isOver) end(undefined);
      else this.#input.resume();
    });
  }

  close(): void {
    if (!this.#isOver) {
      this.#isOver = true;
      this.#input.removeListener('keypress', this.#onKeypress);
      this.#input.removeListener('end', this.#onEnd);
      this.#io.stdout.write(BRACKETS.off);
    }
    this.#open?.end(undefined);
    this.#input.pause();
  }

  /** A key of the terminal. */
  #take(text: string | undefined, key: Key): void {
    if (this.#paste !== undefined) {
      if (key.name === 'paste-end') this.#insert();
      else if (key.name === 'return' || key.name === 'enter') this.#paste.push(key.sequence ?? '\n');
      // Neither Ctrl-C nor any other key is pressed by a paste.
      else if (text !== undefined && (text === '\t' || !/\p{Cc}/u.test(text))) this.#paste.push(text);
    } else if (key.name === 'paste-start') this.#paste = [];
    else {
      if (key.ctrl !== true || key.name !== 'c') this.#listener.onKey();
      this.#give(({ keys }) => keys.emit('keypress', text, key));
    }
  }

  /** A paste that is whole, as one piece of a line: it is not sent before Enter. */
  #insert(): void {
    const text = (this.#paste ?? []).join('').replace(/[\r\n]+$/, '');
    this.#paste = undefined;
    this.#listener.onKey();
    if (text !== '') this.#give(({ line }) => line.write(text.replace(/\r\n|\r|\n/g, LINE_END)));
  }

  #give(act: (open: Open) => void): void {
    if (this.#open === undefined || this.#ahead.length > 0) this.#ahead.push(act);
    else act(this.#open);
  }
}

/** For terminals that understand no escape sequence: the system's own lines. */
class PlainLines implements TypedMessages {
  readonly #io: Io;
  readonly #lines: Interface;
  readonly #each: AsyncIterator<string>;

  constructor(io: Io, input: Input) {
    this.#io = io;
    this.#lines = createInterface({ input, terminal: false });
    this.#each = this.#lines[Symbol.asyncIterator]();
  }

  async next(): Promise<string | undefined> {
    this.#io.stdout.write(PROMPT);
    const { done, value } = await this.#each.next();
    return done === true ? undefined : value;
  }

  close(): void {
    this.#lines.close();
  }
}
