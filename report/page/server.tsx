/** The page of a server: a chat with its models, and what it does at the moment. */
import { render } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { Shown } from './parts/Elements.js';
import { ThemeSwitch } from './parts/Frame.js';
import { hashOf, useRoute } from './parts/route.js';
import { type Model, Server, ServerError, type Settings } from './server/api.js';
import { Chat } from './server/Chat.js';
import { useConversation } from './server/conversation.js';
import { Live } from './server/Live.js';
import { numberOf, Options, type Typed, UNTYPED } from './server/Options.js';

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Asks for a key, which is kept as long as the page is open. */
function KeyForm({ message, onKey }: { readonly message: string; readonly onKey: (key: string) => void }) {
  const [key, setKey] = useState('');
  return (
    <form class="key" onSubmit={(event) => (event.preventDefault(), onKey(key.trim()))}>
      <p role="alert">
        <Shown text={message} />
      </p>
      <label class="choose">
        <span>Key of the server; it is forgotten when the page is closed</span>
        <input
          type="password"
          autocomplete="off"
          spellcheck={false}
          value={key}
          onInput={({ currentTarget }) => setKey(currentTarget.value)}
        />
      </label>
      <button type="submit" class="main" disabled={key.trim() === ''}>
        Use it
      </button>
    </form>
  );
}

type Opening =
  | { readonly state: 'asking' | 'ready' }
  | { readonly state: 'locked' | 'failed'; readonly message: string };

interface Opened {
  readonly opening: Opening;
  readonly models: readonly Model[];
  /** Asks again. */
  readonly retry: () => void;
  /** The server has refused the key in something else. */
  readonly refuse: (error: unknown) => void;
}

/** The models of the server, once it lets itself be asked. */
function useModels(server: Server): Opened {
  const [tries, setTries] = useState(0);
  const [models, setModels] = useState<readonly Model[]>([]);
  const [opening, setOpening] = useState<Opening>({ state: 'asking' });
  const refuse = (error: unknown): void => {
    if (error instanceof ServerError && error.status === 401) setOpening({ state: 'locked', message: error.message });
  };
  useEffect(() => {
    server.models().then(
      (found) => {
        setModels(found);
        setOpening({ state: 'ready' });
      },
      (error: unknown) => {
        setOpening({ state: 'failed', message: messageOf(error) });
        refuse(error);
      },
    );
  }, [tries]);
  return { opening, models, refuse, retry: () => setTries(tries + 1) };
}

const BEGIN: Settings = {
  ...{ model: '', isChat: true, system: '', search: '' },
  ...{ temperature: undefined, topP: undefined, maxTokens: undefined, seed: undefined },
};

function Page() {
  const server = useMemo(() => new Server(), []);
  const { opening, models, retry, refuse } = useModels(server);
  const [chosen, setChosen] = useState(BEGIN);
  const [typed, setTyped] = useState<Typed>(UNTYPED);
  const conversation = useConversation(server, refuse);
  const { section } = useRoute();
  const model = chosen.model === '' ? (models[0]?.id ?? '') : chosen.model;
  const settings: Settings = {
    ...{ ...chosen, model, temperature: numberOf(typed.temperature), topP: numberOf(typed.topP) },
    ...{ maxTokens: numberOf(typed.maxTokens), seed: numberOf(typed.seed) },
  };
  const wrong = Object.values(typed).find((each) => each.trim() !== '' && numberOf(each) === undefined);
  const missing =
    opening.state !== 'ready' || model === ''
      ? 'There is no model yet'
      : wrong === undefined
        ? undefined
        : `${JSON.stringify(wrong)} is no number`;
  useEffect(() => {
    // Models without a template continue texts.
    if (model === '') return;
    server.hasChat(model).then(
      (isChat) => setChosen((so) => ({ ...so, isChat })),
      () => undefined,
    );
  }, [server, model, opening.state]);
  const shown = section === 'live' ? 'live' : 'chat';
  return (
    <div class="server" data-shown={shown}>
      <header>
        <div class="title">
          <h1>tilewright</h1>
          <p>
            {opening.state === 'asking' && 'Asking the server…'}
            {opening.state === 'ready' && <Shown text={models.map(({ id }) => id).join(', ') || 'no model'} />}
            {opening.state === 'locked' && 'The server wants a key.'}
            {opening.state === 'failed' && 'The server does not answer.'}
          </p>
        </div>
        <ThemeSwitch />
        <nav aria-label="Parts">
          {(['chat', 'live'] as const).map((name) => (
            <a key={name} href={hashOf({ section: name, state: {} })} aria-current={name === shown && 'page'}>
              {name === 'chat' ? 'Chat' : 'Live'}
            </a>
          ))}
        </nav>
      </header>
      <main>
        <div class="chat-part">
          {opening.state === 'locked' && (
            <KeyForm
              message={opening.message}
              onKey={(key) => {
                server.key = key;
                retry();
              }}
            />
          )}
          {opening.state === 'failed' && (
            <p class="failed" role="alert">
              <Shown text={opening.message} />{' '}
              <button type="button" class="more" onClick={retry}>
                Try again
              </button>
            </p>
          )}
          {opening.state === 'ready' && (
            <Options
              {...{ models, settings, typed }}
              onChange={(change) => setChosen((so) => ({ ...so, ...change }))}
              onType={(change) => setTyped((so) => ({ ...so, ...change }))}
            />
          )}
          <Chat {...{ conversation, settings, missing }} />
        </div>
        <aside class="live-part" aria-label="What the server does">
          {model !== '' && <Live server={server} model={model} />}
        </aside>
      </main>
    </div>
  );
}

render(<Page />, document.getElementById('page')!);
