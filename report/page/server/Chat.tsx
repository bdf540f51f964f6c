/** A conversation with a model, and how each answer came about. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { Shown } from '../parts/Elements.js';
import type { Settings } from './api.js';
import type { Answer, Comparison, Conversation } from './conversation.js';
import { time } from './Live.js';

/** Text of a model or a user: any characters, none of which acts on what is around it. */
const Text = ({ text }: { readonly text: string }) => (
  <div class="said" dir="auto">
    {text}
  </div>
);

function comparisonOf({ isRunning, alike, error }: Comparison): string {
  if (isRunning) return 'Asking again…';
  if (error !== undefined) return `Asked again: ${error}`;
  return alike === undefined
    ? 'Asked again: the same text.'
    : `Asked again: another text, from character ${alike + 1} on.`;
}

const FINISHES: Readonly<Record<string, string>> = {
  stop: 'ended by itself',
  length: 'cut at its length',
  stopped: 'stopped',
  tool_calls: 'calls a tool',
};

/** Figures of an answer that is over. */
function figuresOf({ tokens, first, seconds, finish, found }: Answer): readonly string[] {
  const behind = tokens !== undefined && tokens > 1 && first !== undefined && seconds !== undefined;
  const rate = behind && found === undefined && seconds > first ? (tokens - 1) / (seconds - first) : undefined;
  return [
    ...(finish === undefined ? [] : [FINISHES[finish] ?? finish]),
    ...(found === undefined ? [] : [found]),
    ...(tokens === undefined ? [] : [`${tokens} tokens`]),
    ...(first === undefined ? [] : [`first after ${time(first)}`]),
    ...(rate === undefined ? [] : [`${rate.toFixed(rate < 10 ? 1 : 0)} tokens/s`]),
  ];
}

interface AnswerProps {
  readonly answer: Answer;
  /** Undefined while something runs. */
  readonly onRepeat: (() => void) | undefined;
}

function AnswerView({ answer, onRepeat }: AnswerProps) {
  const { text, reasoning, isRunning, error, seed, fingerprint, again } = answer;
  const isWhole = !isRunning && error === undefined && answer.finish !== 'stopped';
  return (
    <div class="answered" aria-busy={isRunning}>
      {reasoning !== '' && (
        <details class="thoughts" open={isRunning}>
          <summary>Reasoning</summary>
          <Text text={reasoning} />
        </details>
      )}
      <Text text={text} />
      {isRunning && text === '' && reasoning === '' && <p class="none">…</p>}
      {error !== undefined && (
        <p class="failed" role="alert">
          <Shown text={error} />
        </p>
      )}
      {!isRunning && (
        <p class="facts-line">
          <span>{figuresOf(answer).join(', ')}</span>
          {seed !== undefined && <span data-seed={seed}>seed {seed}</span>}
          {fingerprint !== undefined && (
            <span data-fingerprint={fingerprint}>
              <Shown text={fingerprint} />
            </span>
          )}
          {isWhole && onRepeat !== undefined && (
            <button type="button" class="more" onClick={onRepeat}>
              Run again
            </button>
          )}
        </p>
      )}
      {again !== undefined && (
        <p class={again.alike === undefined ? 'again' : 'again failed'} role="status">
          <Shown text={comparisonOf(again)} />
        </p>
      )}
    </div>
  );
}

/** Keeps the end of the conversation in sight while it grows, unless the reader has gone up. */
function useFollowing(inputs: readonly unknown[]): void {
  const isAtEnd = useRef(true);
  useEffect(() => {
    const look = (): void => {
      const { scrollHeight } = document.documentElement;
      isAtEnd.current = scrollHeight - innerHeight - scrollY < 80;
    };
    addEventListener('scroll', look, { passive: true });
    return () => removeEventListener('scroll', look);
  }, []);
  useEffect(() => {
    if (isAtEnd.current) scrollTo(0, document.documentElement.scrollHeight);
  }, inputs);
}

interface ChatProps {
  readonly conversation: Conversation;
  readonly settings: Settings;
  /** What is missing before anything can be asked. */
  readonly missing: string | undefined;
}

export function Chat({ conversation, settings, missing }: ChatProps) {
  const { exchanges, isRunning, ask, repeat, stop, clear } = conversation;
  const [draft, setDraft] = useState('');
  const field = useRef<HTMLTextAreaElement>(null);
  const canSend = !isRunning && missing === undefined && draft.trim() !== '';
  useFollowing([exchanges]);
  const send = (): void => {
    if (!canSend) return;
    ask(settings.isChat ? draft.trim() : draft, settings);
    setDraft('');
    field.current?.focus();
  };
  return (
    <>
      <div role="log" aria-label="Conversation" class="talk">
        {exchanges.length === 0 && (
          <p class="none">
            {settings.isChat
              ? 'Ask something. The same seed, settings and question give the same answer.'
              : 'Write the beginning of a text: the model continues it. The same seed and settings give the same text.'}
          </p>
        )}
        {exchanges.map(({ question, answer }, i) => (
          <section key={i} aria-label={`Question ${i + 1}`}>
            <div class="asked">
              <Text text={question} />
            </div>
            <AnswerView answer={answer} onRepeat={isRunning ? undefined : () => repeat(i)} />
          </section>
        ))}
      </div>
      <form class="ask" onSubmit={(event) => (event.preventDefault(), send())}>
        <label class="hidden" for="draft">
          {settings.isChat ? 'Message' : 'Beginning of a text'}
        </label>
        <textarea
          id="draft"
          ref={field}
          rows={3}
          value={draft}
          placeholder={missing ?? (settings.isChat ? 'Message' : 'Beginning of a text')}
          onInput={({ currentTarget }) => setDraft(currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === 'Escape') stop();
            if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            send();
          }}
        />
        <div class="ask-buttons">
          {isRunning ? (
            <button type="button" onClick={stop}>
              Stop
            </button>
          ) : (
            <button type="submit" class="main" disabled={!canSend}>
              Send
            </button>
          )}
          <button type="button" disabled={exchanges.length === 0} onClick={clear}>
            New
          </button>
          <span class="note">Enter sends, Shift+Enter breaks the line, Escape stops.</span>
        </div>
      </form>
    </>
  );
}
