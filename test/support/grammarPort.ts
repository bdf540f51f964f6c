/** The thread that follows grammars, in the thread of a test. */
import type { FromGrammars, GrammarThreadData, ToGrammars } from '../../serve/link/grammarMessages.js';
import { grammarVocabulary, GrammarWork } from '../../serve/link/grammarWork.js';
import type { GrammarPort } from '../../serve/link/guides.js';

type Listener = (message: FromGrammars & Error) => void;

/**
 * A thread whose work may be spoiled: `before` is called before each thing that is done, and may throw. `asked`: the
 * texts whose masks are asked for; `looks`: questions about drafts.
 */
export function grammarPort(
  { models, progress }: GrammarThreadData,
  before: (asked: readonly number[], looks: readonly number[]) => void = () => undefined,
): GrammarPort {
  const listeners = new Map<string, Listener>();
  let work: GrammarWork | undefined;
  let isOver = false;
  const turn = (): void => {
    if (isOver || work === undefined) return;
    try {
      const jobs = work['jobs'];
      const looks = jobs.flatMap(({ number, look }) => (look === undefined ? [] : [number]));
      if (!work.isIdle)
        before(
          jobs.map((job) => job.number).filter((each) => work!['states'].has(each)),
          looks,
        );
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
