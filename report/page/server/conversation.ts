/** A conversation as it grows: what was asked, and answers that can be asked for again. */
import { useRef, useState } from 'preact/hooks';
import type { Server, Settings, Turn } from './api.js';

export interface Answer {
  /** What it answers, and how it was asked for: enough to ask for it again. */
  readonly turns: readonly Turn[];
  readonly settings: Settings;
  readonly text: string;
  readonly reasoning: string;
  readonly isRunning: boolean;
  readonly finish: string | undefined;
  readonly error: string | undefined;
  readonly seed: number | undefined;
  readonly fingerprint: string | undefined;
  readonly promptTokens: number | undefined;
  readonly tokens: number | undefined;
  readonly found: string | undefined;
  /** Seconds until its first text, and until its end. */
  readonly first: number | undefined;
  readonly seconds: number | undefined;
  /** What came of asking again. */
  readonly again: Comparison | undefined;
}

export interface Comparison {
  readonly isRunning: boolean;
  /** Characters that are alike from the beginning; undefined: all of both. */
  readonly alike: number | undefined;
  readonly error: string | undefined;
}

export interface Exchange {
  readonly question: string;
  readonly answer: Answer;
}

const seconds = (since: number): number => (performance.now() - since) / 1000;
const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** How far two texts are alike; undefined where they are the same. */
export function alikeUntil(a: string, b: string): number | undefined {
  if (a === b) return undefined;
  let at = 0;
  while (at < a.length && a[at] === b[at]) at++;
  return at;
}

export interface Conversation {
  readonly exchanges: readonly Exchange[];
  readonly isRunning: boolean;
  ask(question: string, settings: Settings): void;
  /** Asks for an answer again, with its own seed, and compares both. */
  repeat(index: number): void;
  stop(): void;
  clear(): void;
}

/** `onRefused`: the server wants a key, or another one. */
export function useConversation(server: Server, onRefused: (error: unknown) => void): Conversation {
  const [exchanges, setExchanges] = useState<readonly Exchange[]>([]);
  const [isRunning, setRunning] = useState(false);
  const running = useRef<AbortController | undefined>(undefined);
  const patch = (index: number, change: (answer: Answer) => Partial<Answer>): void =>
    setExchanges((all) =>
      all.map((each, i) => (i === index ? { ...each, answer: { ...each.answer, ...change(each.answer) } } : each)),
    );

  const begin = async (work: (signal: AbortSignal) => Promise<void>): Promise<void> => {
    const controller = new AbortController();
    running.current = controller;
    setRunning(true);
    try {
      await work(controller.signal);
    } finally {
      if (running.current === controller) setRunning(false);
    }
  };

  const ask = (question: string, settings: Settings): void => {
    const index = exchanges.length;
    const before = exchanges.flatMap((each): readonly Turn[] => [
      { role: 'user', content: each.question },
      { role: 'assistant', content: each.answer.text },
    ]);
    const turns: readonly Turn[] = [...(settings.isChat ? before : []), { role: 'user', content: question }];
    const nothing = { finish: undefined, error: undefined, seed: undefined, fingerprint: undefined, again: undefined };
    const times = { first: undefined, seconds: undefined };
    const figures = { promptTokens: undefined, tokens: undefined, found: undefined, ...times };
    const answer: Answer = { turns, settings, text: '', reasoning: '', isRunning: true, ...nothing, ...figures };
    setExchanges((all) => [...all, { question, answer }]);
    void begin(async (signal) => {
      const since = performance.now();
      try {
        for await (const piece of server.answer(settings, turns, signal))
          patch(index, (so) => ({
            text: so.text + piece.text,
            reasoning: so.reasoning + piece.reasoning,
            first: so.first ?? (piece.text === '' && piece.reasoning === '' ? undefined : seconds(since)),
            finish: piece.finish ?? so.finish,
            seed: piece.seed ?? so.seed,
            fingerprint: piece.fingerprint ?? so.fingerprint,
            promptTokens: piece.promptTokens ?? so.promptTokens,
            tokens: piece.tokens ?? so.tokens,
            found: piece.found ?? so.found,
          }));
        patch(index, () => ({ isRunning: false, seconds: seconds(since) }));
      } catch (error) {
        if (!signal.aborted) onRefused(error);
        const end = signal.aborted ? { finish: 'stopped' } : { error: messageOf(error) };
        patch(index, () => ({ isRunning: false, seconds: seconds(since), ...end }));
      }
    });
  };

  const repeat = (index: number): void => {
    const { turns, settings, seed, text, reasoning } = exchanges[index]!.answer;
    const compare = (again: Partial<Comparison>): void =>
      patch(index, () => ({ again: { isRunning: false, alike: undefined, error: undefined, ...again } }));
    compare({ isRunning: true });
    void begin(async (signal) => {
      let [second, thought] = ['', ''];
      try {
        for await (const piece of server.answer({ ...settings, seed: seed ?? settings.seed }, turns, signal)) {
          second += piece.text;
          thought += piece.reasoning;
        }
        compare({ alike: alikeUntil(reasoning + text, thought + second) });
      } catch (error) {
        if (!signal.aborted) onRefused(error);
        compare({ error: signal.aborted ? 'stopped' : messageOf(error) });
      }
    });
  };

  return {
    ...{ exchanges, isRunning, ask, repeat },
    stop: () => running.current?.abort(),
    clear: () => {
      running.current?.abort();
      setExchanges([]);
    },
  };
}
