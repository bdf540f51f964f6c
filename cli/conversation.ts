/** `tilewright generate MODEL` on a terminal: a line is a prompt, and the answer appears as it is made. */
import { createInterface } from 'node:readline';
import { GenerateError } from '../generate/request.js';
import type { ConverseRequest } from '../driver/commands/converse.js';
import type { Asked } from '../driver/target.js';
import { UserError } from '../errors.js';
import type { Input } from './io.js';
import { printable, printError } from './report.js';
import { sameCommand, withUi, type Context } from './work.js';

const PROMPT = '> ';
const CHAT = 'a conversation, written by the chat template';
const NO_CHAT = 'no chat template: each line is continued by itself';

/** Ends at the end of the input, or with Ctrl-C between two answers. Ctrl-C in an answer ends the answer. */
export async function converse(
  context: Context,
  input: Input,
  request: Omit<Asked<ConverseRequest>, 'signal'>,
  isQuiet: boolean,
): Promise<void> {
  const { io, commands } = context;
  const advice = (): string => `nothing was generated yet; the same command starts again:\n  ${sameCommand(context)}`;
  const { value: conversation } = await withUi(context, { isJson: false, isQuiet, advice }, (ui) =>
    commands.converse(request, ui),
  );
  const lines = createInterface({ input, terminal: false });
  let answer: AbortController | undefined;
  const endStop = io.onStop(() => {
    if (answer === undefined) lines.close();
    else answer.abort();
  });
  const show = (text: string): void => {
    io.stdout.write(printable(text));
  };
  try {
    if (!isQuiet) io.stderr.write(`${conversation.isChat ? CHAT : NO_CHAT}; Ctrl-C stops an answer, Ctrl-D ends\n`);
    show(PROMPT);
    for await (const line of lines) {
      if (line.trim() !== '') {
        answer = new AbortController();
        try {
          const { rest } = await conversation.say(line, {
            onPiece: ({ text }) => show(text),
            signal: answer.signal,
          });
          show(`${rest}\n`);
        } catch (error) {
          if (!(error instanceof UserError || error instanceof GenerateError)) throw error;
          printError(io, error instanceof UserError ? error : new UserError(error.message, START_AGAIN));
        } finally {
          answer = undefined;
        }
      }
      show(PROMPT);
    }
    show('\n');
  } finally {
    endStop();
    lines.close();
    await conversation.close();
  }
}

const START_AGAIN = 'start a new conversation, or give more memory: --cache-tokens';
