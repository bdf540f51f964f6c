/** The thread that follows grammars, in the thread of a test. */
import type { FromGrammars, GrammarThreadData, ToGrammars } from '../../serve/link/grammarMessages.js';
import { grammarVocabulary, GrammarWork } from '../../serve/link/grammarWork.js';
import type { GrammarPort } from '../../serve/link/guides.js';

type Listener = (message: FromGrammars & Error) => void;

/**
 * A thread whose work may be spoiled: `before` is called before each thing that is done, and may throw. `asked`: the
 * text that it was asked for last.
 */
export function grammarPort(
  { models, progress }: GrammarThreadData,
  before: (asked: number) => void = () => undefined,
): GrammarPort {
  const listeners = new Map<string, Listener>();
  let work: GrammarWork | undefined;
  let isOver = false;
  let asked = 0;
  const turn = (): void => {
    if (isOver || work === undefined) return;
    try {
      if (!work.isIdle) before(asked);
      work.next();
    } catch (error) {
      listeners.get('error')?.(error as FromGrammars & Error);
      return;
    }
    const answer = work.take();
    if (answer !== undefined) listeners.get('message')?.(structuredClone(answer) as FromGrammars & Error);
    if (!work.isIdle) setImmediate(turn);
  };
  return {
    postMessage: (message: ToGrammars) => {
      const sent = structuredClone(message);
      setImmediate(() => {
        asked = sent.take.at(-2) ?? sent.begin.at(-1)?.state ?? asked;
        work ??= new GrammarWork(new Map(models.map((model) => [model.key, grammarVocabulary(model)])), progress);
        work.add(sent);
        turn();
      });
    },
    on: (event: string, listener: unknown) => listeners.set(event, listener as Listener),
    removeAllListeners: () => listeners.clear(),
    terminate: () => {
      isOver = true;
      return Promise.resolve();
    },
  };
}
