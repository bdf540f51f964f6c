/** Solutions of a file as a verifier reads them. */
import {
  checkTokens,
  type LaidOut,
  layOutConversation,
  layOutSteps,
  layOutTokens,
  type SolutionWriter as TextWriter,
} from '../models/heads/solutionTexts.js';
import { conversationOf, type PromptLimits, type PromptWriter, writeChat } from './promptTokens.js';
import type { RewardId, RewardInput, RewardLine } from './rewardInput.js';

export interface TokenizedSolution extends LaidOut {
  readonly where: string;
  readonly id: RewardId;
}

export type SolutionWriter = PromptWriter & Pick<TextWriter, 'layout' | 'bos' | 'pad' | 'verdicts'>;

/** Tokens of each solution. Rejects with UserError that names the first line that cannot be scored. */
export async function tokenizeSolutions(
  lines: readonly RewardLine[],
  writer: SolutionWriter,
  limits: PromptLimits,
): Promise<readonly TokenizedSolution[]> {
  const solutions: TokenizedSolution[] = [];
  const texts = textWriter(writer);
  for (const { where, id, input } of lines) {
    const { tokens, rows } = await layOut(where, input, writer, texts);
    checkTokens(where, tokens, limits);
    solutions.push({ where, id, tokens, rows });
  }
  return solutions;
}

/** A conversation has what the command line gives all of them. */
export const textWriter = (writer: SolutionWriter): TextWriter => ({
  ...writer,
  encodeWritten: (text) => writer.tokenizer.encodeWritten(text),
  hasTemplate: writer.template !== undefined,
  writeTurns: async (where, turns) => {
    const messages = turns.map((each) => ({ ...each }));
    const given = conversationOf({ messages, add_generation_prompt: false }, undefined, writer);
    const { tokens, written = '' } = await writeChat(where, given, writer);
    return { tokens, text: written };
  },
});

async function layOut(where: string, input: RewardInput, writer: SolutionWriter, texts: TextWriter): Promise<LaidOut> {
  switch (input.kind) {
    case 'tokens': {
      const { tokens, rows } = input;
      return rows === undefined ? layOutTokens(where, tokens, texts) : { tokens, rows };
    }
    case 'messages': {
      const { prompt, exact } = input;
      return layOutConversation(where, prompt.messages, texts, async () => {
        const given = conversationOf({ ...prompt, add_generation_prompt: false }, exact, writer);
        return (await writeChat(where, given, writer)).tokens;
      });
    }
    case 'steps':
      return layOutSteps(where, input.question, input.steps, texts);
    default:
      return input satisfies never;
  }
}
