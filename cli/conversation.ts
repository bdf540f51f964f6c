/** `tilewright generate MODEL` on a terminal: each message is answered, and the answer appears as it is made. */
import type { Conversation, ConverseRequest } from '../commands/converse.js';
import type { WithTargetChoice } from '../driver/precision.js';
import { UserError } from '../errors.js';
import { GenerateError } from '../generate/request.js';
import type { Input } from './io.js';
import type { Face } from './makeUi.js';
import { printable, printError } from './report.js';
import { typedMessages } from './typedMessages.js';
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
    const story = await import('../commands/converse.js');
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
    if (!(error instanceof UserError || error instanceof GenerateError)) throw error;
    printError(io, error instanceof UserError ? error : new UserError(error.message, START_AGAIN));
  }
}

const START_AGAIN = 'start a new conversation, or give more memory: --cache-tokens';
